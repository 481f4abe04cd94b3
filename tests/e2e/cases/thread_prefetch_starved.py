# e2e: expect = INPUT_BOUND
# e2e: forbid = WAIT_HEAVY
# e2e: mistake = 7
"""A background thread fetches ahead, but too slowly (40 ms for a step of 10): a real wait."""

import queue
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 4 * 109

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(64), index % 10


class Prefetcher:
    def __init__(self, loader, depth=4):
        self.batches = queue.Queue(depth)
        threading.Thread(target=self.fill, args=(loader,), daemon=True).start()

    def fill(self, loader):
        for batch in loader:
            self.batches.put(batch)
        self.batches.put(None)

    def __iter__(self):
        while (batch := self.batches.get()) is not None:
            yield batch


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
for x, y in Prefetcher(DataLoader(Records(), batch_size=4)):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
