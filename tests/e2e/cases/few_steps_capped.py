# e2e: expect = INPUT_BOUND
# e2e: severity = warning
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, MEMORY_CREEP
"""Only 13 steps, most of their time input: a warning, but too few for a critical one."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 4 * 13

    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.05)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Records(), batch_size=4):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
print(f"steps={steps}")
