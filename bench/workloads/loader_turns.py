"""A loop over a DataLoader and nothing else: as many batches a second as it gives.

    loader_turns.py SOCKET DATASET COST BATCH BLOCK WARM [SETTING ...]

Runs freely for WARM seconds, and then in turns. A block is BLOCK batches, timed as a whole: with workers, batches come several at a time. Those that
its workers had ready when it began are taken before the clock starts, and one more of each.
"""

import ast
import itertools
import sys
import time

import torch
from datasets import make_dataset
from torch.utils.data import DataLoader
from turns import take_turns


def main():
    path, kind, cost, batch, block, warm, *settings = sys.argv[1:]
    pairs = (text.split("=", 1) for text in settings)
    settings = {name: ast.literal_eval(value) for name, value in pairs}
    batch, block = int(batch), int(block)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    # One epoch for the whole bench, where that takes no memory: the workers start once.
    length = 100 * batch if kind == "tensors" else 2000 * block * batch
    dataset = make_dataset(kind, length, float(cost))
    loader = DataLoader(dataset, batch_size=batch, **settings)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))

    workers = loader.num_workers
    ahead = workers * (1 + (loader.prefetch_factor or 0))

    def take(count):
        for _ in itertools.islice(batches, ahead):
            pass
        before = time.perf_counter_ns()
        for _ in itertools.islice(batches, count):
            pass
        return [time.perf_counter_ns() - before]

    end = time.monotonic() + float(warm)
    take(block)
    while time.monotonic() < end:
        take(block)
    take_turns(path, lambda: take(block), one_core=workers == 0)


if __name__ == "__main__":
    main()
