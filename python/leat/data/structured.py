"""Samples in the structure their dataset was given in: what the classes of leat.data share."""

import operator
import warnings

import torch
from torch.utils.data import Dataset


def as_tensor(array):
    """A tensor over the same memory; an array that may not be written is shared all the same, as
    nothing here writes to it."""
    if isinstance(array, torch.Tensor):
        return array
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.as_tensor(array)


def structure_of(arrays, named):
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


class Structured(Dataset):
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
        index = one_index(index, len(self))
        return self.build([self._row(leaf, index) for leaf in self.leaves])

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def _row(self, leaf, index):
        return leaf[index]


def one_index(index, length):
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range: there are {length} samples")
    return index if index >= 0 else index + length
