"""Reads batches from a DataLoader as fast as it gives them, in turns with and without leat.

    leat run loader_turns.py RESULT DATASET COST BATCH BLOCK WARM FREE LOADERS [SETTING ...]

Runs for WARM seconds under leat, and for FREE more, in which it counts batches and the CPU time of
what leat does beside the training: its own process, and its threads in this process and in the
workers.

Then leat is stopped, and LOADERS are made, one after the other. Whatever makes the batches, this
process or each worker, removes leat's hooks and restores them (unhooked.py) in turns of BLOCK
batches, in the order with, without, without, with. It does so at a random depth of the stack. So
nothing but leat differs between the two. Two separate loaders would differ by a twentieth, by the
memory layout and the cores of their workers, and the arrival of batches does not show how long each
took to make.

With workers this process removes and restores its own hooks as well, and measures their CPU time.

Writes to RESULT {batch_ns: of a batch, beside: share of a core that leat uses beside making and
reading batches; both None if FREE is 0, taker_ns: of a batch, added by leat to reading it from
workers, lost: {"clock", "CPU": [share of its rate that each maker of batches lost]}}.
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
import statistics
import sys
import tempfile
import time

import torch
from datasets import make_dataset
from leat.profile import lines
from torch.utils.data import DataLoader
from unhooked import FetcherHooks, Hooks

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from pairs import lost_by_cpu_of, lost_of  # noqa: E402

LOADER_S = 1.5  # of blocks
DEEPEST = 24


def sampler_of(pid):
    """The folder in /proc of leat's thread in a process; None: it has none."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() == "leat-lines":
                return task


def sampler_ns(pid):
    """CPU time so far of leat's thread in a process."""
    task = sampler_of(pid)
    return int((task / "schedstat").read_text().split()[0]) if task else 0


class CpuClock:
    """CPU time of this process without leat's thread, which counts as beside."""

    sampler = None  # its clock

    def __call__(self):
        if self.sampler is None and (task := sampler_of(os.getpid())):
            self.sampler = ~int(task.name) << 3 | 6  # as pthread_getcpuclockid() gives it
        own = time.clock_gettime_ns(self.sampler) if self.sampler else 0
        return time.process_time_ns() - own


def beside_ns(leat, pids):
    own = int(pathlib.Path(f"/proc/{leat}/schedstat").read_text().split()[0])
    return own + sum(sampler_ns(pid) for pid in pids)


def take_turns(parts, block, clocks, blocks):
    """To be advanced before each batch: removes and restores leat's hooks, and adds the reading of
    each clock to blocks. The first batch of each turn is not counted."""
    while True:
        got, first = [[0, 0] for _ in clocks], random.random() < 0.5
        for there in (first, not first, not first, first):
            for part in parts:
                part.put(there)
            yield
            began = [clock() for clock in clocks]
            for _ in range(block):
                yield
            for times, clock, begin in zip(got, clocks, began):
                times[there] += clock() - begin
        blocks.append(got)


def worker_takes_turns(folder, block, number):
    """Called before the loop of a worker, which reads indices from the queue before each batch,
    None last."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})  # cores differ
    loop = sys._getframe()
    while loop.f_code.co_name != "_worker_loop":
        loop = loop.f_back
    queue = loop.f_locals["index_queue"]
    queue_get, blocks, turns = queue.get, [], None

    def get(*args, **kwargs):
        nonlocal turns
        got = queue_get(*args, **kwargs)
        if got is None:
            (folder / str(os.getpid())).write_text(json.dumps(blocks))
        elif turns:
            next(turns)
        else:  # there is a fetcher now
            given = loop.f_locals
            parts = Hooks(), FetcherHooks(given["fetcher"], given["collate_fn"])
            turns = take_turns(parts, block, [CpuClock(), time.perf_counter_ns], blocks)
        return got

    queue.get = get


class Measure:
    def __init__(self, leat, make_loader, block):
        self.leat, self.make_loader, self.block = leat, make_loader, block
        self.workers = make_loader.keywords.get("num_workers", 0)
        self.hooks = Hooks()
        self.batch_ns = self.beside = None
        self.makers, self.taker = [], []  # blocks of each that makes batches; of who takes them

    def freely(self, warm, free):
        loader = self.make_loader(persistent_workers=self.workers > 0)
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        next(batches)
        pids = [os.getpid(), *(worker.pid for worker in getattr(loader._iterator, "_workers", ()))]
        for seconds in (warm, free):
            before, begin, count = beside_ns(self.leat, pids), time.monotonic(), 0
            while time.monotonic() - begin < seconds:
                next(batches)
                count += 1
        if count:
            took = 1e9 * (time.monotonic() - begin)
            self.batch_ns, self.beside = took / count, (beside_ns(self.leat, pids) - before) / took

    def take(self, batches, parts, clocks, blocks):
        end = time.monotonic() + LOADER_S
        for _ in zip(take_turns(parts, self.block, clocks, blocks), batches):
            if time.monotonic() > end:
                break
        self.hooks.put(True)

    def one_loader(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            begin = functools.partial(worker_takes_turns, folder, self.block)
            loader = self.make_loader(worker_init_fn=begin)
            batches = iter(loader)
            if self.workers:
                self.take(batches, [self.hooks], [time.thread_time_ns], self.taker)
                del batches  # and the workers end
                self.makers += [json.loads(path.read_text()) for path in folder.iterdir()]
            else:
                parts = self.hooks, FetcherHooks(batches._dataset_fetcher, loader.collate_fn)
                self.makers.append([])
                self.take(batches, parts, [CpuClock(), time.perf_counter_ns], self.makers[-1])

    def turns(self, loaders):
        lines.DENSE_S = 0  # the workers of a new run are sampled at a higher rate
        gc.collect()
        gc.freeze()  # a collection of all objects of torch takes as long as a block, at random times
        if not self.workers:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # cores differ
        for _ in range(loaders):
            os.kill(self.leat, signal.SIGSTOP)
            deeper(random.randrange(DEEPEST), self.one_loader)
            os.kill(self.leat, signal.SIGCONT)
            time.sleep(0.2)  # leat reads what was recorded

    def result(self):
        added = [(with_ - without) / (2 * self.block) for ((without, with_),) in self.taker]
        makers = [blocks for blocks in self.makers if blocks]
        by_clock = lost_of([clock for _, clock in blocks] for blocks in makers)
        return dict(batch_ns=self.batch_ns, beside=self.beside, taker_ns=statistics.median(added) if added else 0,
                    lost={"clock": by_clock, "CPU": list(lost_by_cpu_of(makers))})  # fmt: skip


def deeper(depth, call):
    """The frames of the hooks move what they call along the stack, and its address changes the
    cache conflicts. So it is called at random depths; workers start at the depth where they were
    made."""
    return call() if depth == 0 else next(map(deeper, [depth - 1], [call]))


def main():
    path, kind, cost, batch, block, warm, free, loaders, *settings = sys.argv[1:]
    words = (text.split("=", 1) for text in settings)
    settings = {name: ast.literal_eval(value) for name, value in words}
    torch.manual_seed(1)
    torch.set_num_threads(1)
    batches = 1000 if kind == "tensors" else 1000000  # more than are read
    dataset = make_dataset(kind, batches * int(batch), float(cost))
    settings["batch_size"] = int(batch)
    leat = os.getppid()
    if pathlib.Path(f"/proc/{leat}/comm").read_text().strip() != "leat":
        sys.exit("loader_turns.py is to be run by leat run.")
    measure = Measure(leat, functools.partial(DataLoader, dataset, **settings), int(block))
    try:
        measure.freely(float(warm), float(free))
        measure.turns(int(loaders))
    finally:
        measure.hooks.put(True)
        os.kill(leat, signal.SIGCONT)
    pathlib.Path(path).write_text(json.dumps(measure.result()))


if __name__ == "__main__":
    main()
