"""Datasets of the loader benches. The cost of a sample is one number, in a unit of its own.

python    lines of pure Python, in thousands
array     crops of an image in numpy, then torch: how many
sleep     milliseconds of waiting, as for a server
scatter   the same on average, but from zero to several times it
stream    as sleep, an IterableDataset that its workers share
tensors   a TensorDataset; the number is not used
"""

import random
import time

import numpy
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info


class Samples(Dataset):
    def __init__(self, length, make, cost):
        self.length, self.make, self.cost = length, make, cost

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.make(index, self.cost), index % 10


class Stream(IterableDataset):
    def __init__(self, length, make, cost):
        self.length, self.make, self.cost = length, make, cost

    def __iter__(self):
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.length, every):
            yield self.make(index, self.cost), index % 10


def in_python(index, cost):
    state = index
    for _ in range(int(1000 * cost)):
        state = (state * 1103515245 + 12345) % 2147483648
    return torch.full((64,), state / 2147483648)


IMAGE = numpy.random.default_rng(1).integers(0, 256, (3, 256, 256), dtype=numpy.uint8)
# Module-level arrays have the same addresses in all workers. Arrays made per sample do not, and by
# their relative addresses a sample takes up to 20 % longer in one process than in another.
CROP = numpy.zeros((3, 192, 192), numpy.float32)
SCALED = torch.zeros(3, 192, 192)


def in_arrays(index, cost):
    total = torch.zeros(64)
    for turn in range(int(cost)):
        left = (index + turn) % 32
        CROP[:] = IMAGE[:, left : left + 192, ::-1][:, :, left : left + 192]
        torch.div(torch.from_numpy(CROP), 255, out=SCALED)
        SCALED.sub_(0.5)
        total += SCALED.flatten()[:64]
    return total


def in_sleep(index, cost):
    time.sleep(cost / 1e3)
    return torch.full((64,), float(index))


def in_scattered_sleep(index, cost):
    # The cube of a uniform number has mean 1/4: most are short, few are long.
    time.sleep(4 * random.Random(index).random() ** 3 * cost / 1e3)
    return torch.full((64,), float(index))


def make_dataset(kind, length, cost):
    if kind == "tensors":
        return TensorDataset(torch.randn(length, 64), torch.randint(0, 10, (length,)))
    if kind == "stream":
        return Stream(length, in_sleep, cost)
    make = {
        "python": in_python,
        "array": in_arrays,
        "sleep": in_sleep,
        "scatter": in_scattered_sleep,
    }[kind]
    return Samples(length, make, cost)
