# e2e: expect = INSUFFICIENT_DATA
# e2e: healthy = yes
"""A single step, and a slow one: too little to rest any verdict on."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import sgd


class Records(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.randn(64), index


model = nn.Linear(64, 10)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(Records(), batch_size=4):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
