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

from torch.utils.data import Dataset
from torch.utils.dlpack import from_dlpack

from leat import _core
from leat._lowered import NAMES, Lowered


class Hdf5(Dataset):
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
            self.names, self.datasets = tuple(structure), tuple(structure.values())
        else:
            self.names = None
            self.datasets = (structure,) if isinstance(structure, str) else tuple(structure)
        for dataset in self.datasets:
            if not isinstance(dataset, str):
                raise TypeError(f"a dataset is given by its name; got {dataset!r}")
        self._alone = isinstance(structure, str)
        self._open()

    def _open(self):
        with _quiet():
            self._source = _core.source_hdf5(
                os.fsencode(self.path),
                tuple(name.encode() for name in self.datasets),
                tuple(str(name).encode() for name in self.names or self.datasets),
                tuple(map(os.fsencode, _libraries())),
                self.cache_bytes,
            )

    def __len__(self):
        return self._source.count

    def __getitem__(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} samples")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices):
        if not len(indices):
            return []
        columns = [from_dlpack(leaf).unbind() for leaf in self._source.read(indices)]
        return [self.build(leaves) for leaves in zip(*columns)]

    def build(self, leaves):
        if self._alone:
            return leaves[0]
        return tuple(leaves) if self.names is None else dict(zip(self.names, leaves))

    def build_batch(self, leaves):
        """As build; default_collate makes a list of a tuple."""
        return list(leaves) if self.names is None and not self._alone else self.build(leaves)

    def lowered(self):
        for name, dtype, *_ in self._source.fields:
            if dtype not in NAMES:
                return f"{name} has the type {dtype}, which this torch does not take"
        if not len(self):
            return f"{self.path} has no samples"
        source = self._source
        return Lowered(("hdf5", id(source)), lambda: source, self.build_batch, source.text)

    def __getstate__(self):  # a file is opened anew, not sent
        return {key: value for key, value in self.__dict__.items() if key != "_source"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


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
