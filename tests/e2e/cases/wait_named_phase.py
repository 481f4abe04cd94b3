# e2e: expect = WAIT_HEAVY
# e2e: says = metrics
# e2e: forbid = INPUT_BOUND
"""The script marks its metrics with leat.phase("metrics"): the verdict names them."""

import time

import leat
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


data = TensorDataset(torch.randn(8 * 107, 64), torch.randint(0, 10, (8 * 107,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    with leat.phase("metrics"):
        time.sleep(0.025)
print(f"steps={steps}")
