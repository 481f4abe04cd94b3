# e2e: expect = INPUT_BOUND
# e2e: cause = PER_SAMPLE_OVERHEAD
# e2e: says = fetched one by one for each batch.*BatchSampler\(RandomSampler\(ds\), 4096, True\), batch_size=None
# e2e: forbid = WAIT_HEAVY
"""Tensors in memory, fetched one by one and stacked again, 4096 to a batch."""

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


data = TensorDataset(torch.randn(4096 * 43, 64), torch.randint(0, 10, (4096 * 43,)))
loader = DataLoader(data, batch_size=4096, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
print(f"steps={steps} batches={steps}")
