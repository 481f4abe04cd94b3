"""Whether the line profiler finds a busy line, on every Python here, and what it costs.

    make bench-lines
    .venv/bin/python bench/lines.py [--build FOLDER] [--seconds S] [--cost] [PYTHON ...]

Without PYTHONs, all versions from 3.9 on that are found: the one that runs this, python3.9 and so
on in PATH, pyenv's, those of LEAT_PYTHONS; one of each version. For each Python and each kind of
line (bench/workloads/line_kinds.py) a process makes batches for some seconds, measures its busy
line itself, and is profiled meanwhile. The table has the true share of the line and the share that
was found. Kinds whose module (numpy, Pillow) a Python lacks are left out.

--cost measures with the first Python only: blocks with and without the profiler take turns in one
process. `slower` is the median change of the CPU time of a sample, `longer` of its wall time,
`sampler` the CPU share of the profiler's thread; the spread is the median absolute deviation.

The last line counts the lines that were found; the exit status is 0 if all were. A line is found if
the found share is within 10 % of the true one. Sampling for S seconds at 100 Hz finds a share p
with a standard error of sqrt(p (1-p) / 100 S): for a quarter and ten seconds, 1.4 of 25 points.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "python"))

from receiver import Receiver  # noqa: E402

SCRIPT = os.path.join(ROOT, "bench", "workloads", "line_kinds.py")
KINDS = "python held numpy operator decode sleep read".split()
LEAST_FOUND = 0.9


def run(python, build, *arguments):
    """What the script printed (None when it could not), and the process as leat sees it."""
    with tempfile.TemporaryDirectory() as folder:
        receiver = Receiver(folder)
        package = os.path.join(build, "python")
        env = {**os.environ, "PYTHONPATH": package, "LEAT_SOCKET": receiver.path}
        done = subprocess.run(
            [python, SCRIPT, *map(str, arguments)], env=env, capture_output=True, text=True
        )
        receiver.close()
    if "ModuleNotFoundError" in done.stderr:
        return None, None
    if done.returncode:
        sys.exit(
            f"{python} {' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr}"
        )
    return json.loads(done.stdout), receiver.processes[0]


def found_share(process, number):
    lines = [line for line in process.lines if line.below < 0]
    busy = [x.ns for x in lines if x.line == number and x.file.endswith("line_kinds.py")]
    return sum(busy) / max(sum(line.ns for line in lines), 1)


def version(python):
    """As text; empty for a Python that is not there."""
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def at_hand():
    """This Python, and one more of each version from 3.9 on."""
    named = [f"python3.{minor}" for minor in range(9, 15)]
    of_pyenv = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))
    given = os.environ.get("LEAT_PYTHONS", "").split()
    found = {}
    for python in [sys.executable, *given, *named, *sorted(of_pyenv)]:
        name = version(python)
        if name and tuple(map(int, name.split(".")))[:2] >= (3, 9):
            found.setdefault(name, python)
    return list(found.values())


def shares(pythons, build, seconds):
    held = bars = 0
    print(f"{'Python':10}{'line':10}{'true':>8}{'found':>8}{'of it':>8}{'all lines':>11}")
    for python in pythons:
        for kind in KINDS:
            said, process = run(python, build, kind, seconds)
            name = f"{version(python):10}{kind:10}"
            if said is None:
                print(f"{name}{'not installed':>16}")
                continue
            true, found = said["true"], found_share(process, said["line"])
            # All lines together, relative to the measured time of all samples.
            whole = sum(line.ns for line in process.lines if line.below < 0)
            agree = whole / process.part("fetch").total_ns
            ratio = min(found / true, true / found) if found else 0
            good = said["sampled"] and ratio >= LEAST_FOUND
            held, bars = held + good, bars + 1
            mark = "" if good else "  missed"
            print(
                f"{name}{true:8.1%}{found:8.1%}{found / true:8.2f}{agree:11.1%}{mark}", flush=True
            )
    print(f"\n{held} of {bars} bars held.")
    return held == bars and bars > 0


def middle(values):
    center = statistics.median(values)
    return center, statistics.median(abs(value - center) for value in values)


def cost(python, build, seconds):
    print(f"{'hz':>5} {'line':10}{'slower':>16}{'longer':>16}{'sampler':>10}{'pairs':>7}")
    for kind in ("python", "operator", "sleep"):
        said, _ = run(python, build, kind, seconds, 100)
        if said is None:
            continue
        pairs = said["pairs"]
        cpu, cpu_spread = middle([on_cpu / cpu - 1 for _, cpu, _, _, on_cpu, _ in pairs])
        wall, wall_spread = middle([on / off - 1 for off, _, _, on, _, _ in pairs])
        own = statistics.median(pair[5] for pair in pairs)
        print(
            f"{100:5} {kind:10}{cpu:+9.2%} ±{cpu_spread:5.2%}{wall:+9.2%} ±{wall_spread:5.2%}"
            f"{own:10.3%}{len(pairs):7}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("pythons", nargs="*")
    given = parser.parse_args()
    pythons = given.pythons or at_hand()
    if given.cost:
        cost(pythons[0], given.build, given.seconds)
        return 0
    return 0 if shares(pythons, given.build, given.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
