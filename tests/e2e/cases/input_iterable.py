# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY
"""An IterableDataset that parses slowly in the training process itself."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4 * 97):
            time.sleep(0.01)
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
for x, y in DataLoader(Stream(), batch_size=4):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
