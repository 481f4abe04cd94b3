# e2e: expect = INPUT_BOUND
# e2e: cause = WORKER_STARTUP
# e2e: says = persistent_workers
# e2e: forbid = WAIT_HEAVY
"""Epochs of nine steps, and workers that open an archive for 300 ms at the start of each."""

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
        time.sleep(0.015)
        return self.body(x)


def open_archive(worker_id):
    time.sleep(0.3)


data = TensorDataset(torch.randn(8 * 9, 64), torch.randint(0, 10, (8 * 9,)))
loader = DataLoader(data, batch_size=8, num_workers=2, worker_init_fn=open_archive)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(11):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 97:
            break
print(f"steps={steps} batches={steps}")
