"""Rates of leat.DataLoader and of torch's, for several jobs.

    make bench-loader
    .venv/bin/python bench/loader.py [--build FOLDER] [--only JOB ...] [--scale X] [--seconds S]

Each figure is measured in a process of its own, so that a DataLoader that crashes or uses all
memory affects only its own row. torch gets its best of 0 to 4 workers. A rate is measured from the
request for the iterator, over whole rounds of all workers (a round: one batch of each), for at
least S seconds or to the end of the epoch, with a warm page cache. leat is measured before, between
and after torch; its median counts. The consumer only takes the batches.

Prints a table and the bars. The exit status is 0 when all bars hold. --scale makes the data
smaller, for a first impression.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from overhead import ROOT, Bars

WORKERS = range(5)


# ---- measured, in a process of its own ---------------------------------------------------
def memory_data(job):
    import torch

    return torch.utils.data.TensorDataset(torch.ones(job["rows"], 100))


def tokens_data(job):
    if job["who"] == "leat":
        import leat

        return leat.data.Tokens(job["path"], seq_length=2048)
    return MappedTokens(job["path"])


def npy_data(job):
    if job["who"] == "leat":
        import leat

        return leat.data.Npy(job["path"])
    return MappedRows(job["path"])


class MappedTokens:
    """The usual dataset over np.memmap."""

    def __init__(self, path):
        import numpy

        self.data = numpy.memmap(path, dtype=numpy.uint16, mode="r")

    def __len__(self):
        return len(self.data) // 2048

    def __getitem__(self, i):
        import numpy
        import torch

        return torch.from_numpy(self.data[i * 2048 : (i + 1) * 2048].astype(numpy.int64))


class MappedRows:
    def __init__(self, path):
        import numpy

        self.data = numpy.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        import numpy
        import torch

        return torch.from_numpy(numpy.array(self.data[i]))


DATA = {"memory": memory_data, "tokens": tokens_data, "npy": npy_data}


def make_loader(job, dataset):
    if job["who"] == "leat":
        import leat

        return leat.DataLoader(dataset, batch_size=job["batch"], shuffle=True)
    import torch

    return torch.utils.data.DataLoader(
        dataset, batch_size=job["batch"], shuffle=True, num_workers=job.get("workers", 0)
    )


def rows_of(batch):
    return len(batch[0]) if isinstance(batch, (list, tuple)) else len(batch)


def measure_rate(job):
    loader = make_loader(job, DATA[job["data"]](job))
    round_size = max(1, job.get("workers", 0))
    samples = batches = 0
    start = time.perf_counter()
    while True:
        for batch in loader:
            samples += rows_of(batch)
            batches += 1
            spent = time.perf_counter() - start
            if spent >= job["seconds"] and batches % round_size == 0:
                return samples / spent
        if job["who"] == "torch":  # the epoch was shorter than S seconds
            return samples / (time.perf_counter() - start)


def measure_gather(job):
    """Seconds of one pass over shuffled batches."""
    import torch

    rows = torch.ones(job["rows"], 100)
    if job["who"] == "leat":
        loader = make_loader(job, torch.utils.data.TensorDataset(rows))
        start = time.perf_counter()
        for _batch in loader:
            pass
        return time.perf_counter() - start
    order = torch.randperm(len(rows))
    start = time.perf_counter()
    for i in range(0, len(rows), job["batch"]):
        batch = rows[order[i : i + job["batch"]]]
    del batch
    return time.perf_counter() - start


def measure_first(job):
    """Seconds from construction to the first batch; the median of some loaders."""
    dataset = memory_data(job)
    times = []
    for _ in range(11):
        start = time.perf_counter()
        iterator = iter(make_loader(job, dataset))
        next(iterator)
        times.append(time.perf_counter() - start)
        del iterator
    return statistics.median(times[1:])  # the first one imports


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure_resident(job):
    """Resident memory after ten epochs, as a ratio of that after the first."""
    loader = make_loader(job, memory_data(job))
    after = []
    for _ in range(10):
        for _batch in loader:
            pass
        del _batch
        after.append(resident_bytes())
    return max(after[1:]) / after[0]


MEASURES = {
    "rate": measure_rate,
    "gather": measure_gather,
    "first": measure_first,
    "resident": measure_resident,
}


# ---- the jobs ------------------------------------------------------------------------------------
def ask(program, build, job):
    """The JSON that the process `program --measure JOB` prints; None if it failed."""
    result = subprocess.run(
        [sys.executable, program, "--measure", json.dumps(job)],
        env=dict(os.environ, PYTHONPATH=os.path.join(build, "python")),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"    {job['who']} {job.get('workers', '')}: failed ({result.returncode}): {last}")
        return None
    return json.loads(result.stdout)


class Run:
    program = os.path.abspath(__file__)  # run with --measure

    def __init__(self, arguments, folder):
        self.build, self.seconds, self.scale = arguments.build, arguments.seconds, arguments.scale
        self.folder = folder

    def measure(self, what, who, **job):
        """The figure, or None if the process failed."""
        job.update(what=what, who=who, seconds=self.seconds)
        return ask(self.program, self.build, job)

    def scaled(self, count):
        return max(1, int(count * self.scale))

    def rates(self, name, least, bars, **job):
        """torch with 0 to 4 workers; leat before, between and after."""
        leat = [self.measure("rate", "leat", **job)]
        torch = {}
        for workers in WORKERS:
            rate = self.measure("rate", "torch", workers=workers, **job)
            if rate:
                torch[workers] = rate
            if workers in (2, 4):
                leat.append(self.measure("rate", "leat", **job))
        leat = [rate for rate in leat if rate]
        if not leat or not torch:
            bars.add(name, "not measured", f"{least}x", False)
            return
        best = max(torch, key=torch.get)
        rate = statistics.median(leat)
        print(f"  {name}: leat {rate:,.0f} samples/s; torch", end=" ")
        print(", ".join(f"{w} workers {r:,.0f}" for w, r in torch.items()), flush=True)
        ratio = rate / torch[best]
        what = f"{name}, against torch with {best} workers"
        bars.add(what, f"{ratio:.1f}x", f"at least {least}x", ratio >= least)

    def memory(self, bars):
        for batch in (65536, 1048576):
            name = f"in memory, batch {batch}"
            self.rates(name, 50, bars, data="memory", rows=self.scaled(7_000_000), batch=batch)

    def gather(self, bars):
        for batch in (65536, 1048576):
            times = {"leat": [], "torch": []}
            for _ in range(3):
                for who in times:
                    seconds = self.measure("gather", who, rows=self.scaled(7e6), batch=batch)
                    times[who].append(seconds or float("inf"))
            leat, torch = (statistics.median(times[who]) for who in ("leat", "torch"))
            print(f"  one pass, batch {batch}: leat {leat:.2f} s, X[idx] {torch:.2f} s", flush=True)
            ratio = torch / leat
            bars.add(f"X[idx], batch {batch}", f"{ratio:.2f}x", "at least 1.0x", ratio >= 1)

    def tokens(self, bars):
        path = os.path.join(self.folder, "tokens.bin")
        write_tokens(path, self.scaled(1 << 30))
        self.rates("tokens", 8, bars, data="tokens", path=path, batch=64)
        os.unlink(path)

    def npy(self, bars):
        path = os.path.join(self.folder, "rows.npy")
        write_rows(path, self.scaled(1 << 19))
        self.rates("npy rows", 10, bars, data="npy", path=path, batch=256)
        os.unlink(path)

    def first(self, bars):
        leat = self.measure("first", "leat", rows=100_000, batch=256)
        torch = self.measure("first", "torch", rows=100_000, batch=256, workers=2)
        if not leat or not torch:
            bars.add("first batch", "not measured", "20x", False)
            return
        print(f"  first batch: leat {leat * 1e3:.2f} ms, torch {torch * 1e3:.2f} ms", flush=True)
        ratio = torch / leat
        bars.add("first batch", f"{ratio:.0f}x sooner", "at least 20x", ratio >= 20)

    def resident(self, bars):
        ratio = self.measure("resident", "leat", rows=self.scaled(1_000_000), batch=4096)
        held = ratio is not None and ratio <= 1.01
        value = "not measured" if ratio is None else f"{100 * (ratio - 1):+.2f} %"
        bars.add("resident memory, ten epochs against one", value, "within 1 %", held)


JOBS = ["memory", "gather", "tokens", "npy", "first", "resident"]


def write_tokens(path, count):
    import numpy

    with open(path, "wb") as file:
        part = numpy.arange(1 << 22, dtype=numpy.uint32).astype(numpy.uint16)
        for done in range(0, count, len(part)):
            part[: count - done].tofile(file)


def write_rows(path, rows):
    import numpy

    data = numpy.lib.format.open_memmap(path, mode="w+", dtype=numpy.float32, shape=(rows, 1024))
    for start in range(0, rows, 1 << 14):
        data[start : start + (1 << 14)] = start
    data.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", nargs="+", choices=JOBS, default=JOBS, metavar="JOB")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        job = json.loads(arguments.measure)
        print(MEASURES[job["what"]](job))
        return 0
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        run = Run(arguments, folder)
        for job in arguments.only:
            getattr(run, job)(bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
