# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, INPUT_STRAGGLER, COMPUTE_STRAGGLER, STRAGGLER
# e2e: mistake = 8
# e2e: beside = concurrent_healthy
"""Runs at the same time as concurrent_healthy.py on this host, and must see only itself."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 4 * 103

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(64), index % 10


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
for x, y in DataLoader(Records(), batch_size=4):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
