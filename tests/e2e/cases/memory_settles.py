# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: forbid = MEMORY_CREEP
"""A cache of 200 MB fills in the first third of the run, then memory is flat."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Net, sgd

data = TensorDataset(torch.randn(64 * 293, 64))
model = Net(0.03, 64, 8192)
optimizer = sgd(model)

steps = 0
cache = {}
for (x,) in DataLoader(data, batch_size=64):
    out = model(x)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    cache[steps % 97] = out.detach().clone()
    steps += 1
print(f"steps={steps}")
