# e2e: expect = INPUT_BOUND
# e2e: cause = UNEVEN_WORKERS
# e2e: forbid = WAIT_HEAVY
"""One of two workers has the large shard (160 ms a batch against 16): all wait for it in turn."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)


class Shards(IterableDataset):
    def __iter__(self):
        slow = get_worker_info().id == 1
        for index in range(4 * 34):
            time.sleep(0.04 if slow else 0.004)
            yield torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Shards(), batch_size=4, num_workers=2):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps == 67:
        break
print(f"steps={steps}")
