"""What leat costs a run that only waits for its DataLoader, side by side with the same run untraced.

    make bench-loader-cost
    .venv/bin/python bench/loader_cost.py [--seconds N] [--blocks N] [--warm N] [--build FOLDER]
        [--only WORD]

The script does nothing but take batches, so every microsecond that leat adds to making or handing
over one is throughput lost. Two processes, one untraced and one under `leat run`, take turns as in
bench/overhead.py, in blocks of some tenth of a second. Whoever is not at turn is stopped, with its
workers and with leat itself: otherwise workers would work ahead while the other is measured, and
what leat does in the background would fall on both. A block is timed from one batch to another in
the midst of it, since what lay ready when it began was made at another time. Without workers both
sides run on the same core.

leat looks more closely at a run that has just begun: for half a minute at the processes five times a
second and not once, and at the lines of the first ten seconds of batches a hundred times a second and
not twenty. What is measured is a run as it is from then on, so all processes of a round run freely for
WARM_S first, all at once.

Each two neighbouring blocks give one ratio of their throughputs, and a pair of processes the median
of its ratios. No two processes lie alike in memory, and blocks of one pair have that in common: so
what is judged is the median over pairs, and how well it is known comes from their spread. A round
has eight pairs, one of each workload or more of fewer, and rounds are made for as long as there is time.
Beside it stands the CPU time of all processes, leat's own included, which other work disturbs less. As
leat looks at the machine once a second by the clock, and is stopped for half of it, it does so twice as
often here.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import atexit
import contextlib
import itertools
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

from overhead import ROOT, Bars, Bench, Turns, machine, quartiles, show_progress

MOST_SLOWER = 0.01
LEAST_PAIRS = 5  # of fewer no spread is known
WARM_S = 32
ROUND_PAIRS = 8
# What lies at the top of a process's heap decides whether each large array is given back to the
# kernel, and costs its page faults anew, in one process and not in the other. Here it never is.
STEADY_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "67108864", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
KEEP = "persistent_workers=True"
# name: dataset, cost of a sample, samples in a batch, batches in a block, settings of the loader
WORKLOADS = {
    "pure Python, no workers": ("python", 1, 32, 20),
    "pure Python, 2 workers": ("python", 1, 32, 40, "num_workers=2"),
    "numpy and torch, no workers": ("array", 1, 16, 20),
    "numpy and torch, 2 workers": ("array", 1, 16, 40, "num_workers=2"),
    "tensors one by one, no workers": ("tensors", 0, 4096, 3),
    "tensors one by one, 2 workers": ("tensors", 0, 4096, 8, "num_workers=2", KEEP),
    "sleeping samples, no workers": ("sleep", 2, 8, 8),
    "sleeping samples, 2 workers": ("sleep", 2, 8, 16, "num_workers=2"),
}


def group_cpu_ns(group):
    """CPU time of all threads that the processes of a group have now."""
    total = 0
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):
            if os.getpgid(int(folder.name)) == group:
                for task in (folder / "task").iterdir():
                    total += int((task / "schedstat").read_text().split()[0])
    return total


class StoppedTurns(Turns):
    """Runs only while it is at turn: it, its workers, and leat beside it."""

    def __init__(self, bench, variant, script, arguments):
        super().__init__(bench, variant, script, arguments, start_new_session=True)
        atexit.register(self.tell, signal.SIGKILL)  # a stopped process would outlive the bench

    def meet(self):
        super().meet()
        self.tell(signal.SIGSTOP)

    def tell(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def block(self):
        """us of the block by the clock; CPU us of the whole group in it."""
        before = group_cpu_ns(self.process.pid)
        self.tell(signal.SIGCONT)
        us, _ = super().block()
        self.tell(signal.SIGSTOP)
        return us, (group_cpu_ns(self.process.pid) - before) / 1e3

    def end(self):
        self.tell(signal.SIGCONT)
        super().end()
        atexit.unregister(self.tell)


def start_pair(bench, name, warm):
    kind, cost, batch, block, *settings = (str(value) for value in WORKLOADS[name])
    arguments = (kind, cost, batch, block, str(warm), *settings)
    return bench.start_pair("leat", "loader_turns.py", *arguments)


def measure_pair(bench, name, sides, blocks):
    """(batches a second untraced, throughput lost, more CPU time) of one pair of processes."""
    batches = WORKLOADS[name][3]
    figures = []
    for untraced, traced in bench.neighbours(sides, blocks):
        lost, more = 1 - untraced[0] / traced[0], traced[1] / untraced[1] - 1
        figures.append((1e6 * batches / untraced[0], lost, more))
    return [statistics.median(column) for column in zip(*figures)]


def measure(bench, names, blocks, seconds, warm):
    """{name: figures of its pairs}: as many rounds as there is time for."""
    begin, rounds = time.monotonic(), 0
    pairs = {name: [] for name in names}
    while (
        min(map(len, pairs.values())) < LEAST_PAIRS
        or (time.monotonic() - begin) * (1 + 1 / rounds) < seconds
    ):
        show_progress(f"round {rounds + 1}: all run freely for {warm:g} s")
        turns = names * max(1, ROUND_PAIRS // len(names))
        sides = [start_pair(bench, name, warm) for name in turns]
        for side in itertools.chain.from_iterable(sides):
            side.meet()
        for name, pair in zip(turns, sides):
            show_progress(f"round {rounds + 1}: {name}")
            pairs[name].append(measure_pair(bench, name, pair, blocks))
        rounds += 1
    show_progress("")
    return pairs


def report(name, pairs, bars):
    rates, lost, more = zip(*pairs)
    middle, (low, high) = statistics.median(lost), quartiles(lost)
    print(
        f"  {name:31} {statistics.median(rates):9.1f} {middle:+14.2%}  "
        f"{f'({low:+.2%} .. {high:+.2%})':22} {statistics.median(more):+.2%}"
    )
    # Half of the 95 % interval of a median. A median that is not known to within the bar proves
    # nothing, however low it is.
    give = 1.57 * (high - low) / len(lost) ** 0.5
    held = middle <= MOST_SLOWER and give <= MOST_SLOWER
    bar = f"at most {MOST_SLOWER:.0%}, known to {MOST_SLOWER:.0%}"
    bars.add(name, f"{middle:+.2%} +- {give:.2%}", bar, held)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=480, help="for all of it")
    parser.add_argument("--blocks", type=int, default=20, help="of each process of a pair")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds before the first block")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    arguments = parser.parse_args()
    print(f"Machine: {machine()}.")
    if os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0)):
        print("The machine is busy with other work: the quartiles tell how far it disturbed.")
    names = [name for name in WORKLOADS if arguments.only in name]
    if not names:
        parser.error(f"no workload's name holds {arguments.only!r}")
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        bench = Bench(os.path.abspath(arguments.build), sys.executable, folder, StoppedTurns)
        bench.environment.update(STEADY_MEMORY)
        # As a training finds it: numpy then has a thread of its own. A process of one single thread
        # does not pay for locks until a second one comes, whoever starts it.
        bench.environment.pop("OMP_NUM_THREADS")
        pairs = measure(bench, names, arguments.blocks, arguments.seconds, arguments.warm)
    count = min(map(len, pairs.values()))
    print(f"\n{count} pairs of processes, {arguments.blocks} blocks of each.")
    print(f"  {'':31} batches/s   lost to leat  (quartiles)            CPU time")
    bars = Bars()
    for name in names:
        report(name, pairs[name], bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
