"""leat.data.Hdf5: datasets of an HDF5 file.

The engine reads the file (src/load/source/hdf5.c) and needs libhdf5 only to learn where the data
lie. Here are the names of the datasets, the places where libhdf5 may be, and h5py's lock: the
engine asks libhdf5 in a forked process, and no other thread may be inside the same copy of it at
that moment.
"""

import contextlib
import glob
import importlib.util
import operator
import os
import sys

from leat import _engine
from leat.data.values import Rows, Values


class Hdf5(Values):
    """Datasets of an HDF5 file, a sample being one row of each.

    Hdf5("train.h5", "images")               a sample is a tensor
    Hdf5("train.h5", "images", "meta/ids")   a sample is a tuple, a batch a list of two tensors
    Hdf5("train.h5", image="images", id="meta/ids"), Hdf5("train.h5", {"image": "images"})   dicts
    cache_bytes    most that unpacked chunks take; None: an eighth of the memory, 1 GiB at most

    Chunks packed with gzip, lzf, shuffle or fletcher32 are unpacked whole and kept a while, so read
    them with order="window" (or in their order): each is then unpacked once an epoch.
    """

    def __init__(self, path, *datasets, cache_bytes=None, **named):
        self.path = os.fspath(path)
        self.cache_bytes = 0 if cache_bytes is None else operator.index(cache_bytes)
        if self.cache_bytes < 0:
            raise ValueError(f"cache_bytes is at least 0; got {cache_bytes}")
        if datasets and named:
            raise TypeError("give all datasets by position or all by name")
        structure = named or (datasets[0] if len(datasets) == 1 else datasets)
        if not structure:
            raise TypeError("name the datasets to read")
        if isinstance(structure, dict):
            self.kind, self.datasets = tuple(structure), tuple(structure.values())
        elif isinstance(structure, str):
            self.datasets = (structure,)
        else:
            self.kind, self.datasets = tuple, tuple(structure)
        for dataset in self.datasets:
            if not isinstance(dataset, str):
                raise TypeError(f"a dataset is given by its name; got {dataset!r}")
        self.values = [Rows() for _ in self.datasets]
        self._reopen()

    def _open(self):
        named = isinstance(self.kind, tuple)
        with _quiet():
            return _engine.source_hdf5(
                os.fsencode(self.path),
                tuple(name.encode() for name in self.datasets),
                tuple(str(name).encode() for name in (self.kind if named else self.datasets)),
                tuple(map(os.fsencode, _libraries())),
                self.cache_bytes,
            )

    def engine_spec(self):
        return super().engine_spec() if len(self) else f"{self.path} has no samples"


def _libraries():
    """Where libhdf5 may be beyond the usual places: the copies that h5py and conda bring."""
    places = []
    spec = importlib.util.find_spec("h5py")
    if spec is not None and spec.origin:
        beside = os.path.dirname(os.path.dirname(spec.origin))
        places += sorted(glob.glob(os.path.join(glob.escape(beside), "h5py.libs", "libhdf5-*.so*")))
    places += sorted(glob.glob(os.path.join(glob.escape(sys.prefix), "lib", "libhdf5.so*")))
    return places[:32]


def _quiet():
    """No other thread is inside h5py's libhdf5 meanwhile."""
    objects = sys.modules.get("h5py._objects")
    return getattr(objects, "phil", None) or contextlib.nullcontext()
