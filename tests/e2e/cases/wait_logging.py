# e2e: expect = WAIT_HEAVY
# e2e: forbid = INPUT_BOUND
"""Every step posts its metrics to a slow tracking server (30 ms) before the next begins."""

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
        time.sleep(0.012)
        return self.body(x)


def log_metrics(step, loss):
    time.sleep(0.03)


data = TensorDataset(torch.randn(8 * 103, 64), torch.randint(0, 10, (8 * 103,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    log_metrics(steps, loss.item())
print(f"steps={steps}")
