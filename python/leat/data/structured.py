"""Base classes of leat.data.

SourceDataset   reads its samples through a source of the engine
Structured      samples have the structure that the constructor was given: a tensor, tuple or dict
"""

import operator
import warnings

import torch
from torch.utils.data import Dataset


def as_tensor(array):
    """A tensor over the same memory. A read-only array is shared too: nothing writes to it here."""
    if isinstance(array, torch.Tensor):
        return array
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.as_tensor(array)


def structure_of(arrays, named):
    """A constructor's arguments as one structure: a single value, a tuple, or a dict."""
    if named:
        if arrays:
            raise TypeError("give all fields by position or all by name")
        return dict(named)
    if not arrays:
        raise TypeError("no field is given")
    if len(arrays) == 1:
        return arrays[0]
    return tuple(arrays)


OVERRIDABLE = ("__getitem__", "__getitems__", "__len__")


def overridden(dataset, base):
    """The names in OVERRIDABLE that the dataset's class replaces. Only Python can run them."""
    return [
        name
        for name in OVERRIDABLE
        if getattr(type(dataset), name, None) is not getattr(base, name, None)
    ]


class SourceDataset(Dataset):
    """A subclass has _open(), which sets _source, and _samples(), which makes samples of what
    Source.read() returns. The source is opened again where the dataset is unpickled.

    torch's DataLoader calls __getitems__. It reads many samples at once, but calls __getitem__ for
    each if the user's class has its own."""

    def __len__(self):
        return self._source.count

    def __getitem__(self, index):
        return self._samples(self._source.read([check_index(index, len(self))]))[0]

    def __getitems__(self, indices):
        if type(self).__getitem__ is not SourceDataset.__getitem__:
            return [self[index] for index in indices]
        return self._samples(self._source.read(indices)) if len(indices) else []

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_source"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


class Structured(Dataset):
    """Fields of one length, in a tuple, list or dict, or a single one.

    fields   one entry for each field
    kind     the type of the structure; None: a single field
    names    its keys, if it is a dict
    """

    def _set_fields(self, structure, convert):
        self.kind, self.names, fields = None, None, [structure]
        if isinstance(structure, dict):
            self.kind, self.names, fields = dict, tuple(structure), structure.values()
        elif isinstance(structure, (list, tuple)):
            self.kind, fields = type(structure), structure
        self.fields = tuple(convert(field) for field in fields)

    def build(self, fields):
        """A sample, or a batch, of its fields."""
        if self.kind is None:
            return fields[0]
        if self.kind is dict:
            return dict(zip(self.names, fields))
        if hasattr(self.kind, "_fields"):
            return self.kind(*fields)
        return self.kind(fields)

    def build_batch(self, fields):
        """A batch as default_collate makes it: of a tuple, a list."""
        return list(fields) if self.kind is tuple else self.build(fields)

    def __getitem__(self, index):
        index = check_index(index, len(self))
        return self.build([self._row(field, index) for field in self.fields])

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def _row(self, field, index):
        return field[index]


def check_index(index, length):
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range: there are {length} samples")
    return index if index >= 0 else index + length
