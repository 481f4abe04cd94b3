# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Weights are updated by hand, without torch.optim: each batch of the loader is a step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.025)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 157, 64), torch.randint(0, 10, (8 * 157,)))
model = Net()

steps = 0
for x, y in DataLoader(data, batch_size=8):
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    steps += 1
print(f"steps={steps} batches={steps}")
