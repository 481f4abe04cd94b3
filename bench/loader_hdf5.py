"""Rates of leat.data.Hdf5 and of h5py with torch's DataLoader.

    .venv/bin/python bench/loader_hdf5.py [--build FOLDER] [--only JOB ...] [--scale X] [--seconds
    S]

    photographs   3 x 64 x 64 bytes in chunks of 64, gzip: compressed to 80 %, so that decompression
                  is nearly all of the work
    features      256 float32 in chunks of 256, shuffle and gzip

Both have labels and are shuffled within windows of adjacent samples, by leat and by h5py. Each may cache
64 MiB of decompressed chunks: at least two windows, and a part of the data. h5py is used in the
fastest way: the file is opened in each worker, and the rows of a batch are read one by one or all
at once with sorted indices, whichever is faster; its best of 0 to 4 workers counts. (Sorted indices
that reach less than a fifth of the best rate without workers are not measured with workers.)

Each figure is measured in a process of its own. A rate is measured from the request for the
iterator, over whole windows, for at least S seconds, with a warm page cache. leat is measured
before, between and after; its median counts. The consumer only takes the batches.

Prints a table and the bar. The exit status is 0 when it holds. --scale makes the data smaller, for
a first impression.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

from loader import ask
from overhead import ROOT, Bars

BATCH, CACHE_BYTES = 256, 64 << 20
# Samples, samples of a chunk, and the window that leat chooses for these chunks and this cache.
JOBS = {"photographs": (32768, 64, 2048), "features": (1 << 19, 256, 4096)}
LEAST = 5


# ---- measured, in a process of its own ---------------------------------------------------
class Rows:
    """The usual dataset over h5py. `together`: one sorted selection per batch."""

    def __init__(self, path, together):
        import h5py

        self.path, self.file = path, None
        with h5py.File(path, "r") as file:
            self.length = len(file["row"])
        if together:
            self.__getitems__ = self.read_together

    def open(self):
        import h5py

        if self.file is None:  # in the process that reads
            self.file = h5py.File(
                self.path, "r", rdcc_nbytes=CACHE_BYTES, rdcc_nslots=100_003, rdcc_w0=1
            )
            self.row, self.label = self.file["row"], self.file["label"]

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        import torch

        self.open()
        return torch.from_numpy(self.row[i]), self.label[i]

    def read_together(self, indices):
        import numpy
        import torch

        self.open()
        order = numpy.argsort(indices)
        found = numpy.asarray(indices)[order]
        row, label = self.row[found], self.label[found]
        back = numpy.empty(len(order), int)
        back[order] = range(len(order))
        return [(torch.from_numpy(row[i]), label[i]) for i in back]


class Windows:
    """A sampler: shuffled within windows of adjacent samples."""

    def __init__(self, count, window):
        self.count, self.window = count, window

    def __len__(self):
        return self.count

    def __iter__(self):
        import torch

        for start in range(0, self.count, self.window):
            size = min(self.window, self.count - start)
            yield from (start + torch.randperm(size)).tolist()


def make_loader(job):
    import torch

    if job["who"] == "leat":
        import leat

        dataset = leat.data.Hdf5(job["path"], "row", "label", cache_bytes=CACHE_BYTES)
        loader = leat.DataLoader(dataset, batch_size=BATCH, shuffle=True, order="window")
        assert loader.plan().runs_in_c
        return loader
    dataset = Rows(job["path"], job["together"])
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=BATCH,
        sampler=Windows(len(dataset), job["window"]),
        num_workers=job["workers"],
    )


def measure_rate(job):
    loader = make_loader(job)
    samples = 0
    start = time.perf_counter()
    while True:
        for row, _label in loader:
            samples += len(row)
            spent = time.perf_counter() - start
            if spent >= job["seconds"] and samples % job["window"] == 0:
                return samples / spent


# ---- the run -------------------------------------------------------------------------------------
def measure(arguments, who, **job):
    """The figure, or None if the process failed."""
    job.update(who=who, seconds=arguments.seconds)
    return ask(os.path.abspath(__file__), arguments.build, job)


def photographs(random, count):
    """Gradients with noise in the lower bits."""
    import numpy

    y, x = numpy.mgrid[0:64, 0:64]
    slope = random.uniform(-2, 2, (2, count, 3, 1, 1))
    values = 128 + slope[0] * x + slope[1] * y + random.integers(0, 8, (count, 3, 64, 64))
    return numpy.clip(values, 0, 255).astype("u1")


def features(random, count):
    """Random walks in steps of 1 / 16."""
    return (random.integers(-4, 5, (count, 256)).cumsum(1) / 16).astype("f4")


def write_file(path, job, count):
    import h5py
    import numpy

    random = numpy.random.default_rng(0)
    make = {"photographs": photographs, "features": features}[job]
    packed = {"compression": "gzip", "compression_opts": 4}
    one = make(random, 1)
    chunk = JOBS[job][1]
    with h5py.File(path, "w") as file:
        file.create_dataset("label", data=numpy.arange(count), chunks=(1024,), **packed)
        packed["shuffle"] = one.itemsize > 1
        shape = (count, *one.shape[1:])
        rows = file.create_dataset("row", shape, one.dtype, chunks=(chunk, *shape[1:]), **packed)
        for start in range(0, count, 4096):
            rows[start : start + 4096] = make(random, min(4096, count - start))
        ratio = rows.id.get_storage_size() / (count * one.nbytes)
    print(f"{job}: {count} samples, compressed to {100 * ratio:.0f} %", flush=True)


def compare(arguments, job, path, bars):
    window = JOBS[job][2]
    leat = [measure(arguments, "leat", path=path, window=window)]
    best = {}
    for together in (False, True):
        rates = {}
        for workers in range(5):
            rates[workers] = measure(
                arguments,
                "torch",
                path=path,
                workers=workers,
                together=together,
                window=window,
            )
            if together and (rates[0] or 0) < max(best.values(), default=0) / 5:
                break
        leat.append(measure(arguments, "leat", path=path, window=window))
        how = "sorted selections" if together else "row by row"
        print(f"  h5py, {how}:", end=" ")
        print(", ".join(f"{w} workers {r:,.0f}" for w, r in rates.items() if r), flush=True)
        best.update({f"h5py {how}, {w} workers": r for w, r in rates.items() if r})
    leat = [rate for rate in leat if rate]
    if not leat or not best:
        bars.add(job, "not measured", f"{LEAST}x", False)
        return
    print(f"  leat: {', '.join(f'{rate:,.0f}' for rate in leat)} samples/s", flush=True)
    name = max(best, key=best.get)
    ratio = statistics.median(leat) / best[name]
    what = f"{job}, against {name}"
    bars.add(what, f"{ratio:.1f}x", f"at least {LEAST}x", ratio >= LEAST)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--only", nargs="+", choices=JOBS, default=JOBS, metavar="JOB")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure_rate(json.loads(arguments.measure)))
        return 0
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        for job in arguments.only:
            count, _, window = JOBS[job]
            path = os.path.join(folder, job + ".h5")
            windows = max(1, int(count * arguments.scale) // window)
            write_file(path, job, windows * window)
            compare(arguments, job, path, bars)
            os.unlink(path)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
