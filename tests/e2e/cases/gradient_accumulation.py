# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Four micro-batches to an optimizer step: steps are the optimizer's, not the loader's."""

from torch import nn
from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd

accumulate = 4
data = in_memory(16 * 4 * 61, 512)
model = computing_net()
optimizer = sgd(model)

steps = 0
for i, (x, y) in enumerate(DataLoader(data, batch_size=16)):
    loss = nn.functional.cross_entropy(model(x.repeat(4, 1)), y.repeat(4)) / accumulate
    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
print(f"steps={steps} batches={i + 1}")
