# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Two training loaders, labelled and unlabelled, one batch of each in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import computing_net, in_memory, sgd

labelled = in_memory(8 * 131, 512)
unlabelled = TensorDataset(torch.randn(8 * 131, 512))
model = computing_net()
optimizer = sgd(model)

steps = 0
pairs = zip(DataLoader(labelled, batch_size=8), DataLoader(unlabelled, batch_size=8))
for (x, y), (u,) in pairs:
    loss = nn.functional.cross_entropy(model(x.repeat(8, 1)), y.repeat(8))
    loss = loss + model(u.repeat(8, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={2 * steps}")
