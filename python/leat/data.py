"""leat.data: datasets that leat.DataLoader reads in C.

Each is a torch dataset too: it has a length, gives a sample for an index (or a list of them for
several), can be pickled, and gives the same values through torch's own DataLoader. Samples are
tensors, alone or in the structure they were given in.

    Tensors    tensors and arrays in memory
    Npy        .npy files, memory-mapped
    Tokens     slices of one length of a flat file of tokens
"""

import operator
import os
import warnings

import numpy
import torch
from torch.utils.data import Dataset

__all__ = ["Npy", "Tensors", "Tokens"]


def _as_tensor(array):
    """A tensor over the same memory; an array that may not be written is shared all the same, as
    nothing here writes to it."""
    if isinstance(array, torch.Tensor):
        return array
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.as_tensor(array)


def _is_namedtuple(value):
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _structure_of(arrays, named):
    """What was given to a constructor as one structure: alone, a tuple, or a dict."""
    if named:
        if arrays:
            raise TypeError("give all by position or all by name")
        return dict(named)
    if not arrays:
        raise TypeError("there is nothing to read")
    if len(arrays) == 1:
        return arrays[0]
    return tuple(arrays)


class _Structured(Dataset):
    """Leaves of one length, in a structure of tuples, lists and dicts one level deep."""

    def _take_leaves(self, structure, convert):
        if isinstance(structure, dict):
            self.names = tuple(structure)
            leaves = structure.values()
        elif isinstance(structure, (list, tuple)):
            self.names = None
            leaves = structure
        else:
            self.names = None
            leaves = [structure]
        self.kind = dict if isinstance(structure, dict) else type(structure)
        if not isinstance(structure, (dict, list, tuple)):
            self.kind = None
        self.leaves = tuple(convert(leaf) for leaf in leaves)

    def build(self, leaves):
        """The structure of a sample, or of a batch, from its leaves."""
        if self.kind is None:
            return leaves[0]
        if self.kind is dict:
            return dict(zip(self.names, leaves))
        if hasattr(self.kind, "_fields"):
            return self.kind(*leaves)
        return self.kind(leaves)

    def build_batch(self, leaves):
        """As build, for a batch: default_collate makes a list of a tuple."""
        return list(leaves) if self.kind is tuple else self.build(leaves)

    def __getitem__(self, index):
        index = _one_index(index, len(self))
        return self.build([self._row(leaf, index) for leaf in self.leaves])

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def _row(self, leaf, index):
        return leaf[index]


def _one_index(index, length):
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range: there are {length} samples")
    return index if index >= 0 else index + length


class Tensors(_Structured):
    """Tensors or arrays in memory, a sample being one row of each.

    Tensors(x)             a sample is a tensor
    Tensors(x, y)          a sample is (x[i], y[i]), a batch a list of two tensors
    Tensors(image=x, label=y), Tensors({"image": x, "label": y})   dicts of tensors
    """

    def __init__(self, *arrays, **named):
        self._take_leaves(_structure_of(arrays, named), _as_tensor)
        if not self.leaves:
            raise ValueError("there is nothing to read")
        for leaf in self.leaves:
            if leaf.dim() == 0:
                raise ValueError("a tensor without dimensions has no rows")
        lengths = {leaf.shape[0] for leaf in self.leaves}
        if len(lengths) > 1:
            raise ValueError(f"the tensors have different lengths: {sorted(lengths)}")

    def __len__(self):
        return self.leaves[0].shape[0]


class Npy(_Structured):
    """.npy files, memory-mapped, a sample being one row of each.

    Npy("x.npy"), Npy("x.npy", "y.npy") and Npy(image="x.npy", label="y.npy") give samples as
    Tensors does.
    """

    def __init__(self, *paths, **named):
        self._take_leaves(_structure_of(paths, named), os.fspath)
        self._open()
        lengths = {array.shape[0] for array in self._arrays}
        if len(lengths) > 1:
            raise ValueError(f"the files have different lengths: {sorted(lengths)}")

    def _open(self):
        self._arrays = [_mapped(path) for path in self.leaves]

    def __len__(self):
        return self._arrays[0].shape[0]

    def __getitem__(self, index):
        index = _one_index(index, len(self))
        return self.build([torch.from_numpy(_native(array[index])) for array in self._arrays])

    def __getstate__(self):  # a map is not pickled with its contents
        return {key: value for key, value in self.__dict__.items() if key != "_arrays"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


def _mapped(path):
    array = numpy.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, numpy.ndarray):
        raise ValueError(f"{path} is not a .npy file")
    if array.ndim == 0:
        raise ValueError(f"{path}: an array without dimensions has no rows")
    return array


def _native(row):
    """A copy of a row in the byte order of the machine, which torch wants."""
    row = numpy.asarray(row)
    return numpy.array(row, dtype=row.dtype.newbyteorder("="), order="C")


class Tokens(Dataset):
    """Slices of one length of a flat file of tokens, as int64 tensors.

    Tokens("train.bin", length=2048)    uint16 without a header, as most write it
    stride    from the start of a slice to that of the next; None: the length, no overlap. For
              targets shifted by one take length=2049 and stride=2048
    dtype     'uint16', 'uint32', 'int32' or 'int64'
    """

    TYPES = ("uint16", "uint32", "int32", "int64")

    def __init__(self, path, length, *, stride=None, dtype="uint16"):
        self.path = os.fspath(path)
        self.length = operator.index(length)
        self.stride = self.length if stride is None else operator.index(stride)
        self.dtype = str(numpy.dtype(dtype))
        if self.dtype not in self.TYPES:
            raise ValueError(f"dtype is one of {', '.join(self.TYPES)}; got {dtype!r}")
        if self.length < 1 or self.stride < 1:
            raise ValueError("length and stride are at least 1")
        self._open()

    def _open(self):
        dtype = numpy.dtype(self.dtype).newbyteorder("<")
        size = os.path.getsize(self.path)
        if size % dtype.itemsize:
            raise ValueError(f"{self.path}: {size} bytes are no whole number of {self.dtype}")
        empty = numpy.empty(0, dtype)
        self._tokens = numpy.memmap(self.path, dtype, "r") if size else empty

    def __len__(self):
        return max((len(self._tokens) - self.length) // self.stride + 1, 0)

    def __getitem__(self, index):
        start = _one_index(index, len(self)) * self.stride
        return torch.from_numpy(self._tokens[start : start + self.length].astype(numpy.int64))

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "_tokens"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()
