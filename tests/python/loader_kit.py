"""Helpers of the tests of leat.DataLoader."""

import os
import struct
import subprocess
import sys
import textwrap
import time

import numpy
import torch
from conftest import PACKAGE, environment
from torch.utils.data import Dataset, IterableDataset

sys.path.insert(0, os.path.dirname(PACKAGE))
import leat  # noqa: E402
from leat import data as leat_data  # noqa: E402, F401

ORDERS = ("full", "quasi", "window", "sequential")


class Rows(Dataset):
    """A dataset in Python."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor(index)


class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.tensor(i) for i in range(23))


def numbers(loader):
    """The samples of an epoch, in order; they are numbers."""
    return [i for batch in loader for i in batch.tolist()]


def over(count, *args, **kwargs):
    return leat.DataLoader(torch.arange(count), *args, **kwargs)


def repeated(left, size, world):
    """How many of the samples that are left come twice, so that all ranks have the same number of
    batches: only where fewer samples than ranks remain for the last step."""
    remainder = left % (size * world)
    return world - remainder if 0 < remainder < world else 0


def thread_ids():
    return set(os.listdir("/proc/self/task"))


def threads_now():
    return len(thread_ids())


def threads_settle(limit):
    """Whether at most `limit` threads are left within 10 s: /proc shows a joined thread for a
    moment."""
    until = time.monotonic() + 10
    while threads_now() > limit and time.monotonic() < until:
        time.sleep(0.01)
    return threads_now() <= limit


def files_now():
    return len(os.listdir("/proc/self/fd"))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def anonymous_bytes():
    """Memory of this process that is not mapped from files."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024


def run_script(script, *args, **options):
    env = environment(inject=False, PYTHONPATH=os.path.dirname(PACKAGE))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def megatron_index(path, dtype, lengths, firsts=None):
    """As Megatron-LM's IndexedDatasetBuilder writes it; `firsts` are the first
    sequences of the documents, and the end of the last."""
    codes = {numpy.uint16: 8, numpy.int32: 4}
    firsts = [0, len(lengths)] if firsts is None else firsts
    starts = numpy.cumsum([0, *lengths[:-1]]) * numpy.dtype(dtype).itemsize
    with open(path, "wb") as file:
        file.write(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, codes[dtype], len(lengths), len(firsts))
        )
        file.write(numpy.array(lengths, "<i4").tobytes() + numpy.array(starts, "<i8").tobytes())
        file.write(numpy.array(firsts, "<i8").tobytes())


def megatron_documents(stem, dtype, lengths, firsts):
    """Writes a .bin of rising numbers and its .idx; returns the documents."""
    tokens = numpy.arange(1000, 1000 + sum(lengths), dtype=dtype)
    tokens.tofile(f"{stem}.bin")
    megatron_index(f"{stem}.idx", dtype, lengths, firsts)
    ends = numpy.cumsum([0, *lengths])
    return [tokens[ends[a] : ends[b]] for a, b in zip(firsts, firsts[1:])]
