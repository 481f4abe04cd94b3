"""Helpers of the tests of leat.data.Tar: shards, and WebDataset's reading of them."""

import gzip
import io
import os
import subprocess
import tarfile

import numpy
import torch

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def members_of(i):
    """The four files of sample i, of different types."""
    return {
        "npy": npy(numpy.full((2, 3), i, numpy.float32)),
        "cls": str(i % 7).encode(),
        "txt": f"text {i} \N{EM DASH}".encode(),
        "bin": bytes([i % 256]) * (i * 37 % 2000),
    }


def write_tar(path, count=11, first=0, kind="ustar", name="d/{:05d}", end=True, extra=None):
    """A shard by Python's tarfile; `extra(tar)` adds to it."""
    with open(path, "wb") as file:
        tar = tarfile.open(fileobj=file, mode="w", format=FORMATS[kind])
        for i in range(first, first + count):
            for extension, data in members_of(i).items():
                add(tar, f"{name.format(i)}.{extension}", data)
        if extra:
            extra(tar)
        if end:
            tar.close()
    return os.fspath(path)


def add(tar, name, data=b"", **more):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in more.items():
        setattr(member, key, value)
    tar.addfile(member, io.BytesIO(data))


def packed(path, kind):
    """Writes a compressed copy beside it; returns its path."""
    target = f"{path}.{kind}"
    with open(path, "rb") as file:
        data = file.read()
    if kind == "gz":
        data = gzip.compress(data)
    else:
        data = subprocess.run(
            ["zstd", "-c", "--check"], input=data, capture_output=True, check=True
        ).stdout
    with open(target, "wb") as file:
        file.write(data)
    return target


def by_webdataset(*shards):
    """All samples as WebDataset reads and decodes them."""
    import webdataset

    shards = [os.fspath(shard) for shard in shards]
    data = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False).decode()
    return [
        {key: value for key, value in sample.items() if key not in ("__url__", "__local_path__")}
        for sample in data
    ]


def same(one, other):
    """Whether two samples or batches have the same values, as arrays or tensors."""
    if set(one) != set(other):
        return False
    for key, value in one.items():
        if isinstance(value, (numpy.ndarray, torch.Tensor)):
            mine, yours = torch.as_tensor(value), torch.as_tensor(other[key])
            if mine.dtype != yours.dtype or not torch.equal(mine, yours):
                return False
        elif type(value) is not type(other[key]) or value != other[key]:
            return False
    return True
