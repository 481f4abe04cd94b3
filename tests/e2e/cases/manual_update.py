# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Weights are updated by hand, without torch.optim: each batch of the loader is a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 157, 512), torch.randint(0, 10, (16 * 157,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)

steps = 0
for x, y in DataLoader(data, batch_size=16):
    model.zero_grad()
    nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6)).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    steps += 1
print(f"steps={steps} batches={steps}")
