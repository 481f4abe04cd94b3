# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_STORAGE
# e2e: line = os.preadv(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Samples of forty megabytes each, from a disk that is read past the cache: workers that wait."""

import mmap
import os
import random
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step

BLOCK = 1 << 20
BLOCKS = 64


class Volumes(Dataset):
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.block = mmap.mmap(-1, BLOCK)  # aligned, as direct reads must be

    def __len__(self):
        return 4 * 139

    def __getitem__(self, index):
        total = 0
        for number in random.Random(index).choices(range(BLOCKS), k=40):
            os.preadv(self.file, [self.block], number * BLOCK)
            total += self.block[0]
        return torch.full((64,), total / 10_200), index % 10


model = Net(0.005)
optimizer = sgd(model)

steps = 0
with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:  # /tmp may be memory
    for _ in range(BLOCKS):
        file.write(os.urandom(BLOCK))
    file.flush()
    for x, y in DataLoader(Volumes(file.name), batch_size=4, num_workers=2):
        take_step(model, optimizer, x, y)
        steps += 1
print(f"steps={steps} batches={steps}")
