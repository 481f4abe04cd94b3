# e2e: expect = INTERMITTENT_STALL
# e2e: forbid = WAIT_HEAVY, INPUT_BOUND
"""One step in a hundred is held up for 700 ms; all others are healthy."""

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


data = TensorDataset(torch.randn(8 * 401, 64), torch.randint(0, 10, (8 * 401,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 100 == 90 and steps < 300:
        time.sleep(0.7)
print(f"steps={steps}")
