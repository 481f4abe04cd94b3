"""Rates of leat.data.Lmdb and of the lmdb module with torch's DataLoader.

    .venv/bin/python bench/loader_lmdb.py [--build FOLDER] [--scale X] [--seconds S]

100 000 values of 4096 bytes, float32, shuffled, batches of 256. torch gets its best of 0 to 4
workers. lmdb is used in the fastest known way: an environment per worker with one open transaction,
readahead and locks off, buffers instead of copies, np.frombuffer; once with a get() per sample,
once with a getmulti() per batch. Rates are measured as in loader.py. Prints a table and the bars;
the exit status is 0 when they hold.
"""

import argparse
import json
import os
import sys
import tempfile

import loader
from overhead import ROOT, Bars

BAR = 8


class Values:
    """The usual dataset over the lmdb module."""

    def __init__(self, path, count):
        self.path, self.count, self.transaction = path, count, None

    def __len__(self):
        return self.count

    def open(self):
        if self.transaction is None:  # once in each worker
            import warnings

            import lmdb

            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)
            self.transaction = env.begin(buffers=True)
        return self.transaction

    def __getitem__(self, i):
        import numpy
        import torch

        value = self.open().get(b"%08d" % i)
        return torch.from_numpy(numpy.frombuffer(value, numpy.float32))


class ValuesTogether(Values):
    """The same with one call of lmdb per batch."""

    def __getitems__(self, indices):
        import numpy
        import torch

        found = self.open().cursor().getmulti([b"%08d" % i for i in indices])
        return [torch.from_numpy(numpy.frombuffer(value, numpy.float32)) for _, value in found]


def lmdb_data(job):
    if job["who"] == "leat":
        import leat

        return leat.data.Lmdb(job["path"], ("float32", (1024,)))
    return (ValuesTogether if job["together"] else Values)(job["path"], job["rows"])


loader.DATA["lmdb"] = lmdb_data


class Run(loader.Run):
    program = os.path.abspath(__file__)

    def lmdb(self, bars):
        path, rows = os.path.join(self.folder, "values"), self.scaled(100_000)
        write_values(path, rows)
        job = {"data": "lmdb", "path": path, "rows": rows, "batch": 256}
        self.rates("lmdb, get() a sample", BAR, bars, together=False, **job)
        self.rates("lmdb, getmulti() a batch", BAR, bars, together=True, **job)


def write_values(path, rows):
    import lmdb
    import numpy

    env = lmdb.open(path, map_size=rows * 16384 + (1 << 24), sync=False)
    with env.begin(write=True) as transaction:
        for i in range(rows):
            value = numpy.full(1024, i, numpy.float32).tobytes()
            transaction.put(b"%08d" % i, value, append=True)
    env.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        job = json.loads(arguments.measure)
        print(loader.MEASURES[job["what"]](job))
        return 0
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        Run(arguments, folder).lmdb(bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
