# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: forbid = WAIT_HEAVY
"""An IterableDataset split over two workers, each too slow for the step."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id, 4 * 82, info.num_workers):
            time.sleep(0.03)
            yield torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


model = Net()
optimizer = torch.optim.Adam(model.parameters())

steps = 0
for x, y in DataLoader(Stream(), batch_size=4, num_workers=2, drop_last=False):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps == 79:
        break
print(f"steps={steps}")
