"""What leat costs, side by side with the same script untraced and under TraceML.

    make bench-overhead
    .venv/bin/python bench/overhead.py [--rounds N] [--build FOLDER] [--only PART ...]

Every figure comes from processes that ran in turn, in an order shuffled anew each round, so that
whatever else the machine does falls on all of them. A script times each of its own steps; the
figure of a process is the median of them, and the added time is the median over rounds of the
difference to the untraced process of the same round. Medians, because a step that lost the CPU to
somebody else says nothing about leat. The CPU time of the whole process, background threads
included, is printed beside it: it hides nothing in the quiet steps.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import report_time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKLOADS = os.path.join(ROOT, "bench", "workloads")
TRACEML = "traceml-ai==0.5.0"
# What TraceML needs beside PyTorch, which it must find and never fetch.
TRACEML_NEEDS = ["rich", "psutil", "nvidia-ml-py", "msgspec", "pyyaml", "markdown-it-py", "mdurl"]

MOST_ADDED_US = 15
LEAST_TRACEML_RATIO = 20
MOST_MODULES_SLOWER = 0.01
MOST_STARTUP_MS = 150


class Bars:
    """What was promised, and whether it holds."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, bar, held):
        self.rows.append((what, value, bar, bool(held)))

    def show(self):
        print()
        for what, value, bar, held in self.rows:
            print(f"  {'held  ' if held else 'MISSED'}  {what}: {value} (bar: {bar})")
        held = sum(row[3] for row in self.rows)
        print(f"{held} of {len(self.rows)} bars held.")
        return held == len(self.rows)


class Bench:
    def __init__(self, build, python, folder):
        self.leat = os.path.join(build, "leat")
        self.python = python
        self.folder = folder
        self.count = 0
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
        # torchrun, which TraceML goes through, sets this: set it for all.
        self.environment["OMP_NUM_THREADS"] = "1"
        self.environment["PATH"] = os.path.dirname(python) + ":" + os.environ["PATH"]

    def command(self, variant, arguments):
        """The command that runs `python3 ARGUMENTS` as this variant."""
        plain = [self.python, *arguments]
        if variant == "leat":
            return [self.leat, "run", "--quiet", "--logs-dir", self.folder,
                    "--run-name", f"run{self.count}", "--", *plain]
        if variant == "traceml":
            script, *rest = arguments
            return [os.path.join(os.path.dirname(self.python), "traceml"), "run", script,
                    "--mode", "summary", "--logs-dir", self.folder,
                    "--run-name", f"traceml{self.count}", "--args", *rest, "traceml"]
        return plain

    def run(self, variant, arguments):
        self.count += 1
        done = subprocess.run(self.command(variant, arguments), cwd=self.folder,
                              env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{variant} failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def result(self, variant, script):
        path = os.path.join(self.folder, f"result{self.count}.json")
        self.run(variant, [os.path.join(WORKLOADS, script), path])
        with open(path) as f:
            return json.load(f)

    def steps(self, variants, script, rounds):
        """{variant: [(median us a step, CPU us a step), one a round]}"""
        figures = {variant: [] for variant in variants}
        for number in range(rounds):
            show_progress(f"{script} round {number + 1} of {rounds}")
            for variant in random.sample(variants, len(variants)):
                got = self.result(variant, script)
                figures[variant].append((statistics.median(got["step_ns"]) / 1e3,
                                         got["cpu_ns"] / len(got["step_ns"]) / 1e3))
        show_progress("")
        return figures


def show_progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def added(figures, variant, column):
    """Differences to the untraced process of the same round: median and quartiles."""
    gaps = [a[column] - b[column] for a, b in zip(figures[variant], figures["untraced"])]
    return statistics.median(gaps), *quartiles(gaps)


def middle(figures, variant, column=0):
    return statistics.median(row[column] for row in figures[variant])


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
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", TRACEML,
                               *TRACEML_NEEDS], capture_output=True, text=True)
        if done.returncode:
            print(f"TraceML cannot be installed: {done.stderr.strip().splitlines()[-1]}")
            shutil.rmtree(venv, ignore_errors=True)
            return None
    return python


def measure_steps(bench, rounds, have_traceml, bars):
    variants = ["untraced", "leat"] + (["traceml"] if have_traceml else [])
    figures = bench.steps(variants, "tiny_mlp.py", rounds)
    print(f"A tiny MLP on the CPU: one loader, one model, one optimizer; {rounds} rounds.")
    print("                us/step   added us/step  (quartiles)     added CPU us/step")
    print(f"  untraced  {middle(figures, 'untraced'):11.1f}")
    for variant in variants[1:]:
        mid, low, high = added(figures, variant, 0)
        spread = f"({low:.1f} .. {high:.1f})"
        print(f"  {variant:<9} {middle(figures, variant):11.1f} {mid:15.1f}  {spread:<15} "
              f"{added(figures, variant, 1)[0]:11.1f}")
    ours = added(figures, "leat", 0)[0]
    bars.add("leat adds to a step", f"{ours:.1f} us", f"at most {MOST_ADDED_US} us",
             ours <= MOST_ADDED_US)
    if not have_traceml:
        bars.add("TraceML adds more", "not measured", f"{LEAST_TRACEML_RATIO} times", False)
        return
    theirs = added(figures, "traceml", 0)[0]
    ratio = theirs / ours if ours > 0 else float("inf")
    print(f"  TraceML adds {ratio:.0f} times what leat adds.")
    bars.add("TraceML adds more than leat", f"{ratio:.0f} times",
             f"at least {LEAST_TRACEML_RATIO} times", ratio >= LEAST_TRACEML_RATIO)


def measure_modules(bench, rounds, bars):
    figures = bench.steps(["untraced", "leat"], "many_modules.py", rounds)
    plain, gap = middle(figures, "untraced"), added(figures, "leat", 0)
    ratio = gap[0] / plain
    print(f"\nA model of 1 000 modules, forward, backward and optimizer; {rounds} rounds.")
    print(f"  untraced {plain / 1e3:.2f} ms/step, leat adds {gap[0]:.1f} us "
          f"({gap[1]:.1f} .. {gap[2]:.1f}): {ratio:.2%}")
    bars.add("1 000 modules slow down", f"{ratio:.2%}", f"at most {MOST_MODULES_SLOWER:.0%}",
             ratio <= MOST_MODULES_SLOWER)


def measure_graphs(bench, bars):
    plain, traced = (bench.result(variant, "graphs.py") for variant in ("untraced", "leat"))
    print(f"\ntorch.compile of 12 blocks: {plain['graphs']} graph(s) of {plain['calls']} calls "
          f"untraced, {traced['graphs']} of {traced['calls']} under leat.")
    bars.add("torch.compile makes the same graphs", f"{traced['graphs']} of {traced['calls']}",
             f"{plain['graphs']} of {plain['calls']}", plain == traced and plain["graphs"] > 0)


def measure_startup(bench, rounds, bars):
    times = {"untraced": [], "leat": []}
    for number in range(rounds):
        show_progress(f"start-up round {number + 1} of {rounds}")
        for variant in random.sample(list(times), len(times)):
            before = time.perf_counter()
            bench.run(variant, ["-c", "import torch"])
            times[variant].append((time.perf_counter() - before) * 1e3)
    show_progress("")
    gaps = [a - b for a, b in zip(times["leat"], times["untraced"])]
    low, high = quartiles(gaps)
    print(f"\nStart-up: python -c 'import torch' takes {statistics.median(times['untraced']):.0f} ms;"
          f"\n  under leat run, report included, {statistics.median(gaps):.0f} ms more "
          f"({low:.0f} .. {high:.0f}).")
    bars.add("leat run adds to a start", f"{statistics.median(gaps):.0f} ms",
             f"at most {MOST_STARTUP_MS} ms", statistics.median(gaps) <= MOST_STARTUP_MS)


def machine():
    import torch

    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as f:
        name = next((x.split(":")[1].strip() for x in f if x.startswith("model name")), name)
    return (f"{len(os.sched_getaffinity(0))} cores of {name}, Python "
            f"{platform.python_version()}, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f}")


def main():
    parts = ("steps", "modules", "graphs", "startup", "report")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    print(f"Machine: {machine()}.\n")
    bars = Bars()
    python = traceml_python(build) if "steps" in arguments.only else None
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        bench = Bench(build, python or sys.executable, folder)
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
