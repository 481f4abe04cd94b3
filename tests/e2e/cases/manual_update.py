# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Weights are updated by hand, without torch.optim: each batch of the loader is a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from training import Net, in_memory

data = in_memory(8 * 157)
model = Net(0.025)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    steps += 1
print(f"steps={steps} batches={steps}")
