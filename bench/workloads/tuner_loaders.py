"""Three loaders for bench/tuner.py, one for each kind of sample cost: `leat bench
tuner_loaders:computes` and so on. Made with torch's defaults."""

import time

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)


class Computes(Dataset):
    """A sample uses a CPU for about a millisecond, like decoding."""

    def __len__(self):
        return 1600

    def __getitem__(self, i):
        total = 0
        for k in range(12000):
            total += k * i
        return torch.full((256,), float(total % 7)), i


class Waits(Dataset):
    """A sample waits for 4 ms, like a read over the network."""

    def __len__(self):
        return 560

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((256,), float(i)), i


def computes(**settings):
    return DataLoader(Computes(), batch_size=16, shuffle=True, **settings)


def waits(**settings):
    return DataLoader(Waits(), batch_size=16, shuffle=True, **settings)


def in_memory(**settings):
    rows = TensorDataset(torch.randn(40000, 64), torch.zeros(40000))
    return DataLoader(rows, batch_size=128, shuffle=True, **settings)
