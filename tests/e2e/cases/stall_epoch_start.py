# e2e: expect = INTERMITTENT_STALL
# e2e: says = epoch
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""Workers are started afresh for each of three epochs and need 1.2 s to set up their dataset."""

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
        time.sleep(0.035)
        return self.body(x)


def open_archive(worker_id):
    time.sleep(1.2)


data = TensorDataset(torch.randn(8 * 73, 64), torch.randint(0, 10, (8 * 73,)))
loader = DataLoader(data, batch_size=8, num_workers=1, worker_init_fn=open_archive)
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
        if steps == 211:
            break
print(f"steps={steps} batches={steps}")
