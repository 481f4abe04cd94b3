# e2e: expect = MEMORY_CREEP
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""Every step's output is kept in a list for later (2 MB each), and never released."""

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


data = TensorDataset(torch.randn(64 * 307, 64))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
history = []
for (x,) in DataLoader(data, batch_size=64):
    out = model(x)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    history.append(out.detach().clone())
    steps += 1
print(f"steps={steps}")
