"""What leat costs a run that only waits for its DataLoader, side by side with the same run untraced.

    make bench-loader-cost
    .venv/bin/python bench/loader_cost.py [--seconds N] [--warm N] [--build FOLDER] [--only WORD]

The script does nothing but take batches, so every microsecond that leat adds to making or handing
over one is throughput lost. Two processes of one program lie differently in memory, and their
throughputs differ by more than leat costs. So the same processes do both (bench/workloads/loader_turns.py):
leat's hooks are taken out of a loader and of its workers and put back, by turns in short blocks, and of
neighbouring blocks the median ratio counts.

A median does not see what comes rarely: what leat does beside the making of batches, in its own process, in
its threads that look at lines, and with workers in the process that takes the batches. Its CPU time is added
in full, as if no core were free for it: as a part of one core, or of as many as there are workers.

leat looks more closely at a run that has just begun: for half a minute at the processes five times a
second and not once, and at the lines of the first ten seconds of batches a hundred times a second and
not ten. What is measured is a run as it is from then on, so it runs freely for WARM_S first.

How well a figure is known comes from the spread of many loaders and their workers, each of which has a median: when it
is on one side of the bar for certain, the next workload's turn has come.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from overhead import ROOT, Bars, Bench, machine, show_progress
from overhead import WORKLOADS as SCRIPTS
from pairs import half_width, quartiles

MOST_SLOWER = 0.01
LEAST_LOST = 5  # of fewer no spread is known
LEAST_S = 20
WARM_S = 32
# What lies at the top of a process's heap decides whether each large array is given back to the
# kernel, and costs its page faults anew, in one worker and not in the other. Here it never is.
STEADY_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
# So much ahead that no worker waits for the other, in which time leat's cost would hide.
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


def measure(bench, name, seconds, warm):
    """Batches a second, the share of what is beside, and what each that makes batches lost."""
    path = os.path.join(bench.folder, "result.json")
    kind, cost, batch, block, *settings = (str(value) for value in WORKLOADS[name])
    arguments = (path, kind, cost, batch, block, *map(str, (warm, seconds, MOST_SLOWER)), *settings)
    bench.run("leat", [os.path.join(SCRIPTS, "loader_turns.py"), *arguments])
    with open(path) as f:
        got = json.load(f)
    if len(got["lost"]) < LEAST_LOST:
        sys.exit(f"{name}: only {len(got['lost'])} had their turns; --seconds gives more.")
    return 1e9 / got["batch_ns"], got["beside"], got["lost"]


def report(name, rate, beside, lost, bars):
    low, high = quartiles(lost)
    middle = statistics.median(lost) + beside
    print(
        f"  {name:31} {len(lost):5} {rate:9.1f} {middle:+14.2%} {beside:9.2%}  "
        f"({low + beside:+.2%} .. {high + beside:+.2%})",
        flush=True,
    )
    give = half_width(lost)
    bar = f"at most {MOST_SLOWER:.0%} for certain"
    held = middle + give <= MOST_SLOWER
    bars.add(name, f"{middle:+.2%} +- {give:.2%}", bar, held)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600, help="for all of it, at the most")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds before the turns begin")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    arguments = parser.parse_args()
    print(f"Machine: {machine()}.")
    if os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0)):
        print("The machine is busy with other work: the quartiles tell how far it disturbed.")
    names = [name for name in WORKLOADS if arguments.only in name]
    if not names:
        parser.error(f"no workload's name holds {arguments.only!r}")
    end = time.monotonic() + arguments.seconds
    bars = Bars()
    print(f"  {'':31} times batches/s   lost to leat    beside  (quartiles)")
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        bench = Bench(os.path.abspath(arguments.build), sys.executable, folder)
        bench.environment.update(STEADY_MEMORY)
        # As a training finds it: numpy then has a thread of its own. A process of one single thread
        # does not pay for locks until a second one comes, whoever starts it.
        bench.environment.pop("OMP_NUM_THREADS")
        for place, name in enumerate(names):
            left = (end - time.monotonic()) / (len(names) - place)
            seconds = max(LEAST_S, left - arguments.warm)
            turns = f"in turns for at most {seconds:.0f} s"
            show_progress(f"{name}: {arguments.warm:g} s freely, then {turns}")
            figures = measure(bench, name, seconds, arguments.warm)
            show_progress("")
            report(name, *figures, bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
