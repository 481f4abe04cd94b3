"""How long the report of a long run takes, and how large its database is.

    .venv/bin/python bench/report_time.py [--build FOLDER] [--long]

Databases are recorded by the real writer (make_db) and reported by the code that `leat run` uses
(time_report): reading, diagnosis, summary and text, both files written and synced. The report is
made seven times; the median is judged, and the quickest printed beside it. With --long
(`make bench-long`), also records a million steps of 8 ranks and ten million of one, and judges their
size.
"""

import argparse
import os
import subprocess
import sys
import tempfile

MOST_REPORT_MS = 1000
MOST_BYTES = 256_000_000
RANKS, STEPS = 8, 100_000


def run(*command):
    """The words that a program of ours printed, as a dictionary of name and number."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr.strip()}")
    words = done.stdout.split()
    return dict(zip(words[::2], map(float, words[1::2])))


def record(build, folder, ranks, steps):
    path = os.path.join(folder, f"{ranks}x{steps}.db")
    made = run(os.path.join(build, "bench", "make_db"), path, str(ranks), str(steps))
    print(
        f"  {steps:>10,} steps of {ranks} rank(s): {made['bytes'] / 1e6:6.1f} MB, written in "
        f"{made['seconds']:.1f} s, longest flush {made['longest_flush_ms']:.0f} ms"
    )
    return path, made["bytes"]


def measure(build, folder, bars):
    print("\nA recorded run:")
    path, _ = record(build, folder, RANKS, STEPS)
    times = [run(os.path.join(build, "bench", "time_report"), path, folder) for _ in range(7)]
    middle = sorted(times, key=lambda t: t["total_ms"])[len(times) // 2]
    print(
        f"  report in {middle['total_ms']:.0f} ms (reading {middle['load_ms']:.0f}, diagnosis "
        f"{middle['diagnose_ms']:.0f}, summary and text {middle['report_ms']:.0f}); quickest "
        f"{min(t['total_ms'] for t in times):.0f} ms"
    )
    bars.add(
        f"report of {STEPS:,} steps on {RANKS} ranks",
        f"{middle['total_ms']:.0f} ms",
        f"at most {MOST_REPORT_MS} ms",
        middle["total_ms"] <= MOST_REPORT_MS,
    )


def measure_size(build, folder, bars):
    print("\nLong runs:")
    for ranks, steps in ((8, 1_000_000), (1, 10_000_000)):
        path, size = record(build, folder, ranks, steps)
        got = run(os.path.join(build, "bench", "time_report"), path, folder)
        print(f"  {'':>10} report in {got['total_ms']:.0f} ms")
        bars.add(
            f"run.db of {steps:,} steps on {ranks} rank(s)",
            f"{size / 1e6:.0f} MB",
            f"below {MOST_BYTES / 1e6:.0f} MB",
            size < MOST_BYTES,
        )
        os.unlink(path)


def main():
    from overhead import ROOT, Bars

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--long", action="store_true", help="also judge the size of long runs")
    arguments = parser.parse_args()
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        measure(os.path.abspath(arguments.build), folder, bars)
        if arguments.long:
            measure_size(os.path.abspath(arguments.build), folder, bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
