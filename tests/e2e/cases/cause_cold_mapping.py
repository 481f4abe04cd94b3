# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_STORAGE
# e2e: line = total = int(self.rows
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Rows of a memory-mapped array that are not in the page cache: each is a major fault."""

import mmap
import os
import random
import tempfile

import numpy
import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step

ROW = 4096
ROWS = 64 << 8  # 64 MiB


class Rows(Dataset):
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        self.rows = numpy.memmap(path, numpy.uint8, "r", shape=(ROWS, ROW))
        self.rows._mmap.madvise(mmap.MADV_RANDOM)  # no reading ahead, as befits a shuffled order

    def __len__(self):
        return 4 * 79

    def __getitem__(self, index):
        numbers = random.Random(index).choices(range(ROWS), k=200)
        total = int(self.rows[numbers][:, 0].sum())
        return torch.full((64,), total / 51_000), index % 10

    def __getitems__(self, indices):
        samples = [self[index] for index in indices]
        # What was read is dropped again, so that the file stays as cold as one larger than memory.
        self.rows._mmap.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return samples


model = Net(0.005)
optimizer = sgd(model)

steps = 0
with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:  # /tmp may be memory
    for _ in range(64):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())  # what is dirty cannot be dropped
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for x, y in DataLoader(Rows(file.name), batch_size=4, num_workers=2):
        take_step(model, optimizer, x, y)
        steps += 1
print(f"steps={steps} batches={steps}")
