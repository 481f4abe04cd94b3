# e2e: expect = INPUT_BOUND
# e2e: forbid = INSUFFICIENT_DATA
"""A generator in place of a DataLoader, made visible by leat.wrap_loader()."""

import time

import leat
import torch
from torch import nn

torch.set_num_threads(1)


def shards():
    for _ in range(113):
        time.sleep(0.03)
        yield torch.randn(8, 64), torch.randint(0, 10, (8,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.01)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in leat.wrap_loader(shards()):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
