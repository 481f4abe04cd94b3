# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""leat's own loader, whose threads have every batch ready long before it is asked for."""

import time

import leat
import torch
from torch import nn
from torch.utils.data import TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(256, 10)

    def forward(self, x):
        time.sleep(0.02)
        return self.body(x)


data = TensorDataset(torch.randn(256 * 101, 256), torch.randint(0, 10, (256 * 101,)))
loader = leat.DataLoader(data, batch_size=256, shuffle=True)
assert loader.plan().runs_in_c
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
print(f"steps={steps} batches={steps}")
