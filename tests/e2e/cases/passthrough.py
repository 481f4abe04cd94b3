# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: exit = 7
# e2e: ended = failed
# e2e: stdin = rate 0.25
# e2e: stdout = read: rate 0.25
# e2e: stderr = a word on stderr
"""Reads stdin, writes stdout and stderr, and exits with 7: all of it passes through."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
print("read:", sys.stdin.readline().strip())
print("a word on stderr", file=sys.stderr)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.02)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 59, 64), torch.randint(0, 10, (8 * 59,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
sys.exit(7)
