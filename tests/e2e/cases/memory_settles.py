# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: forbid = MEMORY_CREEP
"""A cache of 200 MB fills in the first third of the run, then memory is flat."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 8192)

    def forward(self, x):
        time.sleep(0.03)
        return self.body(x)


data = TensorDataset(torch.randn(64 * 293, 64))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

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
