# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Four micro-batches to an optimizer step: steps are the optimizer's, not the loader's."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
accumulate = 4
data = TensorDataset(torch.randn(16 * 4 * 61, 512), torch.randint(0, 10, (16 * 4 * 61,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for i, (x, y) in enumerate(DataLoader(data, batch_size=16)):
    loss = nn.functional.cross_entropy(model(x.repeat(4, 1)), y.repeat(4)) / accumulate
    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
print(f"steps={steps} batches={i + 1}")
