"""A loop over a DataLoader and nothing else, as many batches a second as it gives: with leat and without it.

    leat run loader_turns.py RESULT DATASET COST BATCH BLOCK WARM SECONDS KNOWN [SETTING ...]

Runs freely for WARM seconds under leat, and for FREE_S more, over which the CPU time is taken of all that
leat does beside the training: its own process, and its threads in this one and in the workers.

Then leat is stopped, and loaders come in pairs until what leat takes is KNOWN, as pairs.py tells, or SECONDS are
over: two with the same settings, one made and used
while leat's hooks are in this process, the other while they are not (unhooked.py). They take turns in blocks
of BLOCK batches, at a depth of the stack that chance has chosen for both: one, the other, the other and the
one, because who comes second finds the same data in the caches. The workers of the one whose turn it is not
are stopped. What workers had ready when a block began is taken before the clock starts, and one
batch more of each.

Writes {beside: CPU seconds a second, pairs: [[[ns of two blocks without hooks, ns with them], ...], ...]}
to RESULT.
"""

import ast
import contextlib
import functools
import gc
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import time

import torch
from datasets import make_dataset
from torch.utils.data import DataLoader
from unhooked import Hooks

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from pairs import half_width, lost_of  # noqa: E402

FREE_S = 10
PAIR_S = 1.5  # of blocks
LEAST_PAIRS = 40  # of fewer the spread itself is a guess
DEEPEST = 24


def sampler_ns(pid):
    """CPU time so far of leat's thread in a process."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().strip() == "leat-lines":
                return int((task / "schedstat").read_text().split()[0])
    return 0


def beside_ns(leat, side):
    own = int(pathlib.Path(f"/proc/{leat}/schedstat").read_text().split()[0])
    return own + sum(sampler_ns(pid) for pid in (os.getpid(), *side.workers()))


class Side:
    """A loader with leat's hooks, or without them."""

    iterator = None

    def __init__(self, hooks, there, make_loader):
        self.hooks, self.there = hooks, there
        self.begin()
        self.loader = make_loader()
        self.batches = self.endless()
        next(self.batches)
        self.end()

    def endless(self):
        while True:
            self.iterator = iter(self.loader)
            yield from self.iterator

    def workers(self):
        return [
            worker.pid for worker in getattr(self.iterator, "_workers", ()) if worker.is_alive()
        ]

    def begin(self):
        self.hooks.put(self.there)
        for pid in self.workers():
            os.kill(pid, signal.SIGCONT)

    def end(self):
        for pid in self.workers():
            os.kill(pid, signal.SIGSTOP)

    def take(self, count):
        for _ in itertools.islice(self.batches, count):
            pass

    def block(self, count):
        """ns of so many batches."""
        self.begin()
        self.take(1 + self.loader.num_workers * (1 + (self.loader.prefetch_factor or 0)))
        before = time.perf_counter_ns()
        self.take(count)
        took = time.perf_counter_ns() - before
        self.end()
        return took

    def close(self):
        self.begin()
        self.batches.close()
        self.iterator = self.loader = None  # its workers end with it


def run_freely(side, seconds):
    """Seconds that it took."""
    begin = time.monotonic()
    side.begin()
    while time.monotonic() - begin < seconds:
        side.take(1)
    return time.monotonic() - begin


def deeper(depth, call):
    """The hooks' own frames move what they call along the stack, and where that lies decides what of it
    is in the way of what else. So it lies in many places, each of which is both sides'."""
    return call() if depth == 0 else next(map(deeper, [depth - 1], [call]))


def measure_pair(hooks, make_loader, block):
    sides = [Side(hooks, there, make_loader) for there in (False, True)]
    blocks = []
    end = time.monotonic() + PAIR_S
    while time.monotonic() < end or not blocks:
        got, depth = [0, 0], random.randrange(DEEPEST)
        one, other = random.sample(sides, 2)
        for side in (one, other, other, one):
            got[side.there] += deeper(depth, lambda side=side: side.block(block))
        blocks.append(got)
    for side in sides:
        side.close()
    return blocks


def is_known(pairs, known):
    return len(pairs) >= LEAST_PAIRS and half_width(lost_of(pairs)) <= known


def measure(hooks, leat, make_loader, block, warm, seconds, known):
    side = Side(hooks, True, make_loader)
    run_freely(side, warm)
    before = beside_ns(leat, side)
    free_s = run_freely(side, FREE_S)
    beside = (beside_ns(leat, side) - before) / 1e9 / free_s
    side.close()
    gc.collect()
    gc.freeze()  # to collect all that torch has made takes as long as a block, and comes at random
    if "num_workers" not in make_loader.keywords:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # no two cores are alike
    pairs, end = [], time.monotonic() + seconds
    while time.monotonic() < end and not is_known(pairs, known):
        os.kill(leat, signal.SIGSTOP)
        pairs.append(measure_pair(hooks, make_loader, block))
        os.kill(leat, signal.SIGCONT)
        time.sleep(0.2)  # it takes what was recorded
    return {"beside": beside, "pairs": pairs}


def main():
    path, kind, cost, batch, block, warm, seconds, known, *settings = sys.argv[1:]
    words = (text.split("=", 1) for text in settings)
    settings = {name: ast.literal_eval(value) for name, value in words}
    batch, block = int(batch), int(block)
    warm, seconds, known = float(warm), float(seconds), float(known)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    length = 100 * batch if kind == "tensors" else 1000000 * batch
    dataset = make_dataset(kind, length, float(cost))
    leat = os.getppid()
    if pathlib.Path(f"/proc/{leat}/comm").read_text().strip() != "leat":
        sys.exit("loader_turns.py is to be run by leat run.")
    hooks = Hooks()
    make_loader = functools.partial(DataLoader, dataset, batch_size=batch, **settings)
    try:
        result = measure(hooks, leat, make_loader, block, warm, seconds, known)
    finally:
        hooks.put(True)
        os.kill(leat, signal.SIGCONT)
    pathlib.Path(path).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
