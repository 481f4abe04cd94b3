"""Rates of leat.data.Tar and of WebDataset over the same shards, shuffled.

    .venv/bin/python bench/loader_tar.py [--build FOLDER] [--scale X] [--rounds N]

100 000 samples, a .npy of 4 kB and a label each, in 20 shards. WebDataset is used as its
documentation recommends: shards shuffled, a shuffle buffer of 1000, decoded, batched in the
workers, and torch's DataLoader with its best of 0 to 4 workers. leat shuffles over all samples.
Both give batches of 256 as tensors, and the consumer only takes them.

Each figure is measured in a process of its own, with a warm page cache. A rate is that of a whole
epoch, from the request for the iterator; with workers, of the second epoch of the process, because
workers persist between epochs. leat is measured before, between and after; its median counts. The
time to index the shards once is printed too, and is not part of the rate.

The exit status is 0 when the bar holds. --scale makes the data smaller, for a first impression.
"""

import argparse
import io
import json
import os
import statistics
import sys
import tarfile
import tempfile
import time

from loader import ask
from overhead import ROOT, Bars

SAMPLES, SHARDS, BATCH, WORKERS, BAR = 100_000, 20, 256, range(5), 15


# ---- measured, in a process of its own ---------------------------------------------------
def leat_loader(job):
    import leat
    from leat.data import Tar

    start = time.perf_counter()
    dataset = Tar(job["shards"])
    job["index_seconds"] = time.perf_counter() - start
    return leat.DataLoader(dataset, BATCH, shuffle=True)


def webdataset_loader(job):
    import torch
    import webdataset

    dataset = (
        webdataset.WebDataset(job["shards"], shardshuffle=len(job["shards"]))
        .shuffle(1000)
        .decode()
        .to_tuple("npy", "cls")
        .batched(BATCH)
    )
    workers = job["workers"]
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


def measure(job):
    import torch

    torch.set_num_threads(1)
    loader = leat_loader(job) if job["who"] == "leat" else webdataset_loader(job)
    for _epoch in range(1 if job.get("workers") == 0 else 2):  # the second epoch with workers
        samples = 0
        start = time.perf_counter()
        for batch in loader:
            samples += len(batch["npy"] if isinstance(batch, dict) else batch[0])
        seconds = time.perf_counter() - start
    if samples != job["samples"]:
        raise SystemExit(f"{samples} samples came of {job['samples']}")
    return {"rate": samples / seconds, "index_seconds": job.get("index_seconds", 0)}


# ---- the run -------------------------------------------------------------------------------------
def write_shards(folder, samples):
    import numpy

    paths = []
    for shard in range(SHARDS):
        paths.append(os.path.join(folder, f"shard-{shard:03d}.tar"))
        with tarfile.open(paths[-1], "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(shard, samples, SHARDS):
                file = io.BytesIO()
                numpy.save(file, numpy.full(1024, i, numpy.float32))
                add(tar, f"{i:08d}.npy", file.getvalue())
                add(tar, f"{i:08d}.cls", str(i % 1000).encode())
    return paths


def add(tar, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def compare(arguments, shards, samples, bars):
    def measured(**job):
        job.update(shards=shards, samples=samples)
        return ask(os.path.abspath(__file__), arguments.build, job)

    leat, theirs = [measured(who="leat")], {}
    for _round in range(arguments.rounds):
        for workers in WORKERS:
            got = measured(who="webdataset", workers=workers)
            if got:
                theirs.setdefault(workers, []).append(got["rate"])
            if workers in (2, 4):
                leat.append(measured(who="leat"))
    leat = [got for got in leat if got]
    if not leat or not theirs:
        bars.add("tar shards", "not measured", f"{BAR}x", False)
        return
    rates = {workers: statistics.median(each) for workers, each in theirs.items()}
    best = max(rates, key=rates.get)
    rate = statistics.median(got["rate"] for got in leat)
    index = statistics.median(got["index_seconds"] for got in leat)
    print(
        f"  tar shards: leat {rate:,.0f} samples/s (indexed once in {index:.2f} s); WebDataset",
        end=" ",
    )
    print(", ".join(f"{w} workers {r:,.0f}" for w, r in rates.items()), flush=True)
    ratio = rate / rates[best]
    what = f"tar shards, against WebDataset with {best} workers"
    bars.add(what, f"{ratio:.1f}x", f"at least {BAR}x", ratio >= BAR)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(json.loads(arguments.measure))))
        return 0
    bars = Bars()
    with tempfile.TemporaryDirectory(prefix="leat-bench-") as folder:
        samples = max(SHARDS, int(SAMPLES * arguments.scale))
        compare(arguments, write_shards(folder, samples), samples, bars)
    return 0 if bars.show() else 1


if __name__ == "__main__":
    sys.exit(main())
