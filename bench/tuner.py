"""`leat bench` against the full grid: quality of the settings found, and time of the search.

    .venv/bin/python bench/tuner.py [--build FOLDER] [--only NAME ...] [--json FILE]

For each of three loaders (samples that compute, wait, or are in memory) every combination of
num_workers, prefetch_factor and persistent_workers is measured over two epochs; what counts is the
second, its start included. Then `leat bench --json` searches. The best of the grid was chosen
among many noisy figures, so it and leat's choice are then measured again, in turns, in alternating
order; the median of the ratios of adjacent measurements counts. The time of leat's search is
compared with that of the whole grid, including the start and end of workers.

Prints a table and then the bars; the exit status is 0 when all bars hold.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKLOADS = os.path.join(ROOT, "bench", "workloads")
LOADERS = ("computes", "waits", "in_memory")
WORKERS = (0, 1, 2, 4, 8)
PREFETCH = (2, 4, 8)
TURNS = 9

LEAST_RATE_RATIO = 0.95
MOST_TIME_RATIO = 0.2


def grid():
    yield {}
    for workers, prefetch, kept in itertools.product(WORKERS[1:], PREFETCH, (False, True)):
        yield {"num_workers": workers, "prefetch_factor": prefetch, "persistent_workers": kept}


def measure(make, settings):
    """Samples/s of a second epoch, and what both took."""
    begin = time.perf_counter()
    loader = make(**settings)
    for _ in range(2):
        t0 = time.perf_counter()
        samples = sum(len(batch[0]) for batch in loader)
        rate = samples / (time.perf_counter() - t0)
    del loader  # ends workers that were kept
    return rate, time.perf_counter() - begin


def serve(name):
    """In a process of its own, so that torch and its settings are as in a training: lines of
    settings in, rates out."""
    sys.path.insert(0, WORKLOADS)
    import tuner_loaders

    make = getattr(tuner_loaders, name)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(make, json.loads(line))), flush=True)


class Server:
    def __init__(self, name):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process.stdout.readline()

    def measure(self, settings):
        self.process.stdin.write(json.dumps(settings) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def search(build, name):
    """What leat recommends, how long its search took, and the whole command."""
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    begin = time.perf_counter()
    done = subprocess.run(
        [os.path.join(build, "leat"), "bench", "--quiet", "--json", f"tuner_loaders:{name}"],
        cwd=WORKLOADS,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"leat bench {name} failed: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout)
    chosen = result["choice"]["settings"]
    settings = {}
    if chosen["num_workers"]:
        names = ("num_workers", "prefetch_factor", "persistent_workers")
        settings = {name: chosen[name] for name in names}
    if result["disturbed"]:
        print(f"  other programs kept {result['others_cpus']:.1f} CPUs busy: not a quiet machine")
    return settings, result["search_s"], time.perf_counter() - begin, len(result["rows"])


def words(settings):
    if not settings:
        return "0 workers"
    kept = ", kept" if settings["persistent_workers"] else ""
    return f"{settings['num_workers']} workers, prefetch {settings['prefetch_factor']}{kept}"


def take_turns(server, best, chosen):
    """[(rate of the best of the grid, rate of leat's choice)], adjacent in time."""
    if chosen == best:  # whatever differs is luck
        return [(rate, rate) for rate in (server.measure(best)[0] for _ in range(3))]
    turns = []
    for number in range(TURNS):
        pair = (best, chosen) if number % 2 else (chosen, best)
        rates = [server.measure(settings)[0] for settings in pair]
        turns.append(tuple(rates if number % 2 else reversed(rates)))
    return turns


def bench(build, name):
    server = Server(name)
    rows = [(settings, *server.measure(settings)) for settings in grid()]
    chosen, search_s, whole_s, measured = search(build, name)
    best = max(rows, key=lambda row: row[1])[0]
    turns = take_turns(server, best, chosen)
    server.close()
    best_rate = statistics.median(turn[0] for turn in turns)
    rate = statistics.median(turn[1] for turn in turns)
    ratios = [turn[1] / turn[0] for turn in turns]
    grid_s = sum(row[2] for row in rows)
    print(f"{name}: {len(rows)} settings in {grid_s:.1f} s")
    for settings, measured_rate, _ in sorted(rows, key=lambda row: -row[1])[:3]:
        print(f"    {measured_rate:9.0f} samples/s  {words(settings)}")
    print(f"  best of the grid, again {best_rate:9.0f} samples/s  {words(best)}")
    print(f"  leat's choice           {rate:9.0f} samples/s  {words(chosen)}")
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    ratio = statistics.median(ratios)
    print(f"  of the best             {ratio:9.2f} ({low:.2f} .. {high:.2f}, {len(ratios)} turns)")
    print(
        f"  leat measured {measured} settings in {search_s:.1f} s"
        f" ({whole_s:.1f} s with torch's import)",
        flush=True,
    )
    return {"name": name, "rate_ratio": ratio, "time_ratio": search_s / grid_s}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", nargs="*", choices=LOADERS, default=LOADERS)
    parser.add_argument("--json", help="write the ratios to this file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    results = [bench(os.path.abspath(options.build), name) for name in options.only]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
    print()
    held = 0
    for result in results:
        for what, value, bar, holds in (
            ("rate", result["rate_ratio"], LEAST_RATE_RATIO, lambda v, b: v >= b),
            ("time", result["time_ratio"], MOST_TIME_RATIO, lambda v, b: v <= b),
        ):
            held += holds(value, bar)
            mark = "held  " if holds(value, bar) else "MISSED"
            print(f"  {mark}  {result['name']}: {what} {value:.2f} of the grid's (bar: {bar})")
    print(f"{held} of {2 * len(results)} bars held.")
    return 0 if held == 2 * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
