# e2e: expect = INTERMITTENT_STALL
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""A storage hiccup of 900 ms in three of 409 fetches: a stall, not a slow pipeline."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 8 * 409

    def __getitem__(self, index):
        if index in (8 * 120, 8 * 217, 8 * 333):
            time.sleep(0.9)
        return torch.zeros(64), index % 10


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
for x, y in DataLoader(Records(), batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
