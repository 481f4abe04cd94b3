"""What leat costs a run that only reads batches from its DataLoader, next to the same run without
leat.

    make bench-loader-cost
    .venv/bin/python bench/loader_cost.py [--seconds N] [--warm N] [--build FOLDER] [--only WORD]

The script only reads batches, so the time that leat adds to making a batch or passing it on is lost
throughput. Two processes of one program have different memory layouts, and their throughputs differ
by more than leat costs. So one process does both (bench/workloads/loader_turns.py): leat's hooks
are removed from a loader and its workers and restored, in turns of short blocks, and the median
ratio of adjacent blocks counts.

Two workers and the process that reads their batches share two cores, so the wall time of a batch
depends on the scheduler. For workers that compute, the CPU time that leat adds to their threads
counts, as a share of the time in which they make a batch. The wall time is printed beside it; it
has more noise.

The median does not contain rare costs: leat's own process, its profiler threads, and, with workers,
its hooks in the process that reads the batches. Their CPU time is added in full ("beside"), as if
no core were free: as a share of one core, or of as many cores as there are workers.

leat samples a new run at a higher rate: for half a minute the processes five times per second
instead of once, and the lines of the first ten seconds of batches a hundred times per second
instead of ten. This bench measures the time after that, so each workload first runs for WARM_S.

All workers of a run have the memory layout of their parent, so a run counts once, with the median
of its workers, and there are many runs. The workloads take turns until each is known to be above or
below the bar, or the time is over. Ctrl-C prints the results so far.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time

from overhead import ROOT, Bars, Bench, machine, show_progress
from overhead import WORKLOADS as SCRIPTS
from pairs import below, decided, half_width, quartiles

MOST_SLOWER = 0.02
WARM_S = 32
FREE_S = 10
LOADERS = 6  # of a run; with fewer it would mostly start up
# Keeps large arrays in the heap. Otherwise some workers return each to the kernel, and pay for its
# page faults again, and others do not.
STEADY_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
# So many batches ahead that no worker waits for the other, which would hide leat's cost.
TWO = "num_workers=2", "prefetch_factor=8"
# name: dataset, cost of a sample, samples in a batch, batches in a block, settings of the loader
WORKLOADS = {
    "pure Python, no workers": ("python", 1, 32, 1),
    "pure Python, 2 workers": ("python", 1, 32, 2, *TWO),
    "numpy and torch, no workers": ("array", 1, 16, 1),
    "numpy and torch, 2 workers": ("array", 1, 16, 2, *TWO),
    "tensors one by one, no workers": ("tensors", 0, 1024, 1),
    "tensors one by one, 2 workers": ("tensors", 0, 1024, 2, *TWO),
    "sleeping samples, no workers": ("sleep", 2, 8, 1),
    "sleeping samples, 2 workers": ("sleep", 2, 8, 2, *TWO),
}


class Loss:
    """What a workload loses to leat, from its runs so far."""

    def __init__(self, bench, name):
        self.bench, self.name = bench, name
        self.path = os.path.join(bench.folder, "result.json")
        kind, *numbers, self.settings = *WORKLOADS[name][:4], WORKLOADS[name][4:]
        self.words = [str(word) for word in (kind, *numbers)]
        self.clock = "CPU" if self.settings and kind != "sleep" else "clock"
        self.runs, self.takers_ns = [], []

    def run(self, warm=1, free=0):
        words = (self.path, *self.words, str(warm), str(free), str(LOADERS), *self.settings)
        self.bench.run("leat", [os.path.join(SCRIPTS, "loader_turns.py"), *words])
        with open(self.path) as f:
            got = json.load(f)
        if not got["lost"]["clock"]:
            sys.exit(
                f"{self.name}: no process made batches for a whole turn. Is the machine too busy?"
            )
        if free:
            self.batch_ns, self.free = got["batch_ns"], got["beside"]
        self.runs.append({clock: statistics.median(lost) for clock, lost in got["lost"].items()})
        self.takers_ns.append(got["taker_ns"])

    def beside(self):
        """As if no core were free: a share of one core, or of as many as there are workers."""
        taker = statistics.median(self.takers_ns) / self.batch_ns
        return (self.free + taker) / (2 if self.settings else 1)

    def lost(self, clock=None):
        beside = self.beside()
        return [run[clock or self.clock] + beside for run in self.runs]

    def decided(self):
        return decided(self.lost(), MOST_SLOWER)

    def report(self, bars):
        bar = f"at most {MOST_SLOWER:.0%} for certain"
        if len(self.runs) < 2:
            return bars.add(self.name, "too few runs", bar, None)
        lost, clock = self.lost(), self.lost("clock")
        low, high = quartiles(lost)
        middle, give = statistics.median(lost), half_width(lost)
        print(
            f"  {self.name:31} {len(lost):4} {1e9 / self.batch_ns:9.1f} {middle:+14.2%} {self.beside():9.2%}  "
            f"({low:+.2%} .. {high:+.2%})  {statistics.median(clock):+.2%} +- {half_width(clock):.2%}"
        )
        bars.add(self.name, f"{middle:+.2%} +- {give:.2%}", bar, below(lost, MOST_SLOWER))


def take_turns(losses, warm, end):
    """Runs the workloads in turn, until all are decided or the time is over."""
    for loss in losses:
        show_progress(f"{loss.name}: {warm:g} s freely, then in turns")
        loss.run(warm, FREE_S)
    while time.monotonic() < end and (open_ := [loss for loss in losses if not loss.decided()]):
        for loss in open_:
            left = max(0, end - time.monotonic()) / 60
            show_progress(
                f"{loss.name}: run {len(loss.runs) + 1}; {len(open_)} not decided, {left:.0f} min left"
            )
            loss.run()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600, help="for all of it, at the most")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds before the turns begin")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    arguments = parser.parse_args()
    print(f"Machine: {machine()}.")
    if os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0)):
        print("The machine is busy with other work: the quartiles show how much it disturbed.")
    names = [name for name in WORKLOADS if arguments.only in name]
    if not names:
        parser.error(f"no workload's name holds {arguments.only!r}")
    end = time.monotonic() + arguments.seconds
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        bench = Bench(os.path.abspath(arguments.build), sys.executable, folder)
        bench.environment.update(STEADY_MEMORY)
        # As in a real training: numpy starts threads, and a process with several threads pays for
        # locks.
        bench.environment.pop("OMP_NUM_THREADS")
        losses = [Loss(bench, name) for name in names]
        with contextlib.suppress(KeyboardInterrupt):
            take_turns(losses, arguments.warm, end)
    show_progress("")
    print(f"  {'':31} runs batches/s   lost to leat    beside  (quartiles)  by the clock")
    for loss in losses:
        loss.report(bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
