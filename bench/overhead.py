"""What leat costs, side by side with the same script untraced and under TraceML.

    make bench-overhead
    .venv/bin/python bench/overhead.py [--rounds N] [--build FOLDER] [--only PART ...]

Two processes run at a time, one untraced, the other under leat or TraceML, and take turns: a block
of about ten milliseconds each. So other load on the machine affects both alike. A script times each
of its own steps; a block counts with the median of its steps,
without the first ones, whose caches the other process had used. Both run on one core, as no two cores are alike while others use the
machine. The overhead is the median over all pairs of adjacent blocks, and over many pairs of
processes, because no two processes have the same memory layout: two untraced ones differ by
about 10 us per step, in either direction. So there are many short pairs, and six times as many for
leat, where 10 us decide. The mean of the middle half of the pairs counts: it varies less than the
median when they have two modes. The CPU time of the whole process, background threads
included, is printed beside it.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import json
import os
import platform
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import report_time
from pairs import quartiles

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKLOADS = os.path.join(ROOT, "bench", "workloads")
TRACEML = "traceml-ai==0.5.0"
# What TraceML needs beside PyTorch, which it must find and never fetch.
TRACEML_NEEDS = ["rich", "psutil", "nvidia-ml-py", "msgspec", "pyyaml", "markdown-it-py", "mdurl"]

MOST_ADDED_US = 20
LEAST_TRACEML_RATIO = 10
MOST_MODULES_SLOWER = 0.01
MOST_STARTUP_MS = 150


class Bars:
    """The bars, and whether each holds."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, bar, held):
        """held: or None, if the measurement does not decide."""
        word = "not known" if held is None else "held" if held else "MISSED"
        self.rows.append((word, what, value, bar))

    def show(self):
        print()
        for word, what, value, bar in self.rows:
            print(f"  {word:6}  {what}: {value} (bar: {bar})")
        held = sum(row[0] == "held" for row in self.rows)
        print(f"{held} of {len(self.rows)} bars held.")
        return held == len(self.rows)


class Bench:
    def __init__(self, build, python, folder, traceml=None):
        self.leat = os.path.join(build, "leat")
        self.python = python
        self.folder = folder
        self.count = 0
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
        # torchrun, which TraceML goes through, sets this: set it for all.
        self.environment["OMP_NUM_THREADS"] = "1"
        self.environment["PATH"] = os.path.dirname(python) + ":" + os.environ["PATH"]
        self.traceml = [os.path.join(os.path.dirname(python), "traceml")]
        if traceml:
            self.traceml = [python, os.path.join(traceml, "bin", "traceml")]
            self.environment["PYTHONPATH"] = traceml  # for all, that none differs by it

    def command(self, variant, arguments):
        """The command that runs `python3 ARGUMENTS` as this variant."""
        plain = [self.python, *arguments]
        if variant == "leat":
            return [
                self.leat,
                "run",
                "--quiet",
                "--logs-dir",
                self.folder,
                "--run-name",
                f"run{self.count}",
                "--",
                *plain,
            ]
        if variant == "traceml":
            script, *rest = arguments
            return [
                *self.traceml,
                "run",
                script,
                "--mode",
                "summary",
                "--logs-dir",
                self.folder,
                "--run-name",
                f"traceml{self.count}",
                "--args",
                *rest,
                "traceml",
            ]
        return plain

    def run(self, variant, arguments):
        self.count += 1
        done = subprocess.run(
            self.command(variant, arguments),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{variant} failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def result(self, variant, script):
        path = os.path.join(self.folder, f"result{self.count}.json")
        self.run(variant, [os.path.join(WORKLOADS, script), path])
        with open(path) as f:
            return json.load(f)

    def start(self, variant, script, *arguments):
        """Starts a workload that takes turns."""
        self.count += 1
        return Turns(self, variant, os.path.join(WORKLOADS, script), arguments)

    def start_pair(self, variant, script, *arguments):
        """An untraced process and one of this variant, to be met before their first block."""
        return [self.start(name, script, *arguments) for name in ("untraced", variant)]

    def adjacent(self, sides, blocks):
        """Yields adjacent blocks of the two, each as (us per step, CPU us per step)."""
        for _ in range(blocks):
            got = {i: sides[i].block() for i in random.sample(range(2), 2)}
            yield got[0], got[1]
        for side in sides:
            side.end()

    def pair(self, variant, script, blocks):
        """Gaps between neighbouring blocks of an untraced process and one of this variant."""
        gaps, cpu_gaps, plain = [], [], []
        sides = self.start_pair(variant, script)
        for side in sides:
            side.meet()
        for untraced, traced in self.adjacent(sides, blocks):
            gaps.append(traced[0] - untraced[0])
            cpu_gaps.append(traced[1] - untraced[1])
            plain.append(untraced[0])
        return [statistics.median(x) for x in (gaps, cpu_gaps, plain)]

    def added(self, variant, script, rounds, blocks):
        """[(added us, added CPU us, untraced us) a step, one a pair of processes]"""
        figures = []
        for number in range(rounds):
            show_progress(f"{script} {variant}: pair {number + 1} of {rounds}")
            figures.append(self.pair(variant, script, blocks))
        show_progress("")
        return list(zip(*figures))


class Turns:
    """A process that runs a block of steps each time it is asked to."""

    def __init__(self, bench, variant, script, arguments):
        self.what = f"{os.path.basename(script)} as {variant}"
        path = os.path.join(bench.folder, f"turns{bench.count}")
        self.log = open(path + ".log", "w+")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.process = subprocess.Popen(
            bench.command(variant, [script, path, *arguments]),
            cwd=bench.folder,
            env=bench.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    def meet(self):
        """Waits until the process is ready for its first block."""
        self.listener.settimeout(1)
        while True:
            try:
                self.socket, _ = self.listener.accept()
                break
            except socket.timeout:
                if self.process.poll() is not None:
                    self.fail()
        self.listener.close()
        self.answers = self.socket.makefile()

    def fail(self):
        self.log.seek(0)
        sys.exit(f"{self.what} failed:\n{self.log.read()}")

    def block(self):
        """Median us per step of a block, without its first sixth; CPU us per step."""
        self.socket.sendall(b"g")
        line = self.answers.readline()
        if not line:
            self.process.wait()
            self.fail()
        got = json.loads(line)
        times = got["step_ns"]
        return (statistics.median(times[len(times) // 6 :]) / 1e3, got["cpu_ns"] / len(times) / 1e3)

    def end(self):
        self.answers.close()
        self.socket.close()
        if self.process.wait():
            self.fail()
        self.log.close()


def show_progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def middle_of(values):
    """The mean of their middle half."""
    values = sorted(values)
    cut = len(values) // 4
    return statistics.mean(values[cut : len(values) - cut])


def traceml_python(build):
    """A Python with TraceML that sees the PyTorch of .venv; None when it cannot be had."""
    venv = os.path.join(build, "bench-venv")
    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(os.path.join(venv, "bin", "traceml")):
        shutil.rmtree(venv, ignore_errors=True)
        import torch

        shared = os.path.dirname(os.path.dirname(torch.__file__))
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        with open(os.path.join(venv, "lib", version, "site-packages", "shared.pth"), "w") as f:
            f.write(shared + "\n")
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", "--no-deps", TRACEML, *TRACEML_NEEDS],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            print(f"TraceML cannot be installed: {done.stderr.strip().splitlines()[-1]}")
            shutil.rmtree(venv, ignore_errors=True)
            return None
    return python


def measure_steps(bench, rounds, have_traceml, bars):
    variants = ["leat"] + (["traceml"] if have_traceml else [])
    pairs = {"leat": 6 * rounds, "traceml": rounds}
    figures = {v: bench.added(v, "tiny_mlp.py", pairs[v], blocks=16) for v in variants}
    print(
        f"A tiny MLP on the CPU: one loader, one model, one optimizer; {6 * rounds} pairs of "
        f"processes, {rounds} with TraceML."
    )
    print("             us/step   added us/step  (quartiles)       added CPU us/step")
    print(f"  untraced  {statistics.median(x for f in figures.values() for x in f[2]):8.1f}")
    for variant, (gaps, cpu_gaps, plain) in figures.items():
        low, high = quartiles(gaps)
        total = statistics.median(g + p for g, p in zip(gaps, plain))
        print(
            f"  {variant:<9} {total:8.1f} {middle_of(gaps):15.1f}  "
            f"{f'({low:.1f} .. {high:.1f})':<17} {middle_of(cpu_gaps):8.1f}"
        )
    ours = middle_of(figures["leat"][0])
    bars.add(
        "leat adds to a step",
        f"{ours:.1f} us",
        f"at most {MOST_ADDED_US} us",
        ours <= MOST_ADDED_US,
    )
    if not have_traceml:
        bars.add("TraceML adds more", "not measured", f"{LEAST_TRACEML_RATIO} times", False)
        return
    ratio = middle_of(figures["traceml"][0]) / max(ours, 0.1)
    print(f"  TraceML adds {ratio:.1f} times what leat adds.")
    bars.add(
        "TraceML adds more than leat",
        f"{ratio:.1f} times",
        f"at least {LEAST_TRACEML_RATIO} times",
        ratio >= LEAST_TRACEML_RATIO,
    )


def measure_modules(bench, rounds, bars):
    gaps, cpu_gaps, plain = bench.added("leat", "many_modules.py", rounds, blocks=20)
    slower = [g / p for g, p in zip(gaps, plain)]
    cpu_slower = statistics.median(g / p for g, p in zip(cpu_gaps, plain))
    low, high = quartiles(slower)
    middle = statistics.median(slower)
    print(f"\nA model of 1 000 modules: forward, backward, optimizer; {rounds} pairs of processes.")
    print(
        f"  untraced {statistics.median(plain) / 1e3:.2f} ms/step; under leat {middle:+.2%} "
        f"({low:+.2%} .. {high:+.2%}), {cpu_slower:+.2%} by CPU time"
    )
    bars.add(
        "1 000 modules slow down",
        f"{middle:.2%}",
        f"at most {MOST_MODULES_SLOWER:.0%}",
        middle <= MOST_MODULES_SLOWER,
    )


def measure_graphs(bench, bars):
    plain, traced = (bench.result(variant, "graphs.py") for variant in ("untraced", "leat"))
    print(
        f"\ntorch.compile of 12 blocks: {plain['graphs']} graph(s) of {plain['calls']} calls "
        f"untraced, {traced['graphs']} of {traced['calls']} under leat."
    )
    bars.add(
        "torch.compile makes the same graphs",
        f"{traced['graphs']} of {traced['calls']}",
        f"{plain['graphs']} of {plain['calls']}",
        plain == traced and plain["graphs"] > 0,
    )


def measure_startup(bench, rounds, bars):
    times = {"untraced": [], "leat": []}
    for number in range(2 * rounds):
        show_progress(f"start-up round {number + 1} of {2 * rounds}")
        for variant in random.sample(list(times), len(times)):
            before = time.perf_counter()
            bench.run(variant, ["-c", "import torch"])
            times[variant].append((time.perf_counter() - before) * 1e3)
    show_progress("")
    gaps = [a - b for a, b in zip(times["leat"], times["untraced"])]
    low, high = quartiles(gaps)
    middle = statistics.median(gaps)
    print(
        f"\nStart-up: python -c 'import torch' takes {statistics.median(times['untraced']):.0f} ms;"
        f"\n  under leat run, report included, {middle:.0f} ms more ({low:.0f} .. {high:.0f}); "
        f"quickest against quickest {min(times['leat']) - min(times['untraced']):.0f} ms."
    )
    bars.add(
        "leat run adds to a start",
        f"{middle:.0f} ms",
        f"at most {MOST_STARTUP_MS} ms",
        middle <= MOST_STARTUP_MS,
    )


def machine():
    import torch

    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as f:
        name = next((x.split(":")[1].strip() for x in f if x.startswith("model name")), name)
    return (
        f"{len(os.sched_getaffinity(0))} cores of {name}, Python "
        f"{platform.python_version()}, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )


def main():
    parts = ("steps", "modules", "graphs", "startup", "report")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument(
        "--traceml", help="where `pip install --target` has put it, on a machine without a network"
    )
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    print(f"Machine: {machine()}.")
    if os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0)):
        print("The machine is busy with other work: times by the clock are not to be relied on.")
    print()
    bars = Bars()
    python = None
    if "steps" in arguments.only:
        python = sys.executable if arguments.traceml else traceml_python(build)
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        traceml = arguments.traceml and os.path.abspath(arguments.traceml)
        bench = Bench(build, python or sys.executable, folder, traceml=traceml)
        if "steps" in arguments.only:
            measure_steps(bench, arguments.rounds, python is not None, bars)
        if "modules" in arguments.only:
            measure_modules(bench, arguments.rounds, bars)
        if "graphs" in arguments.only:
            measure_graphs(bench, bars)
        if "startup" in arguments.only:
            measure_startup(bench, arguments.rounds, bars)
        if "report" in arguments.only:
            report_time.measure(build, folder, bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
