# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 2
"""A first step of 300 ms (lazy set-up) among 30 healthy ones: warm-up, not a wait."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.ready = False

    def forward(self, x):
        if not self.ready:
            time.sleep(0.3)
            self.ready = True
        time.sleep(0.04)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 31, 64), torch.randint(0, 10, (8 * 31,)))
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
