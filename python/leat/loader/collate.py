"""leat.Pad and leat.Concat: batches of samples that differ in length, as a collate_fn.

They are plain collate functions, for torch's own DataLoader as well. Where leat.DataLoader reads the
dataset in C, they become the engine's layout (src/load/batch_layout.h) and give the same batches:

    samples ── __call__()   each field put together here ──┐
                                                           ├─► expand(): the batch
    engine  ── of_engine()  fields that the engine put ────┘
                            together, or only stacked

A field is laid out when its samples are tensors (or arrays) of one dimension or more: the first one
is the length. All others are put together as default_collate does. What is added stands behind the
field: in a dict as "x_lengths" behind "x", in a tuple or list as the next entry, and a sample that is
a tensor alone becomes a list.
"""

import inspect
import math
import operator
from collections.abc import Mapping

import numpy
import torch
from torch.utils.data import default_collate

from leat import _engine


class Laid:
    """A field that was put together, and what is added to it as (suffix, tensor)."""

    def __init__(self, rows, added):
        self.rows = rows
        self.added = added


class Variable:
    """What the engine made of a field whose samples differ in length."""

    def __init__(self, rows, lengths):
        self.rows = rows
        self.lengths = lengths


def _count(name, value):
    if value is None:
        return None
    if isinstance(value, bool) or operator.index(value) < 1:
        raise ValueError(f"{name} is a whole number from 1 on, or None; got {value!r}")
    return operator.index(value)


def _has_rows(value):
    if isinstance(value, numpy.ndarray):
        return value.ndim > 0 and value.dtype.kind not in "SUO"
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _is_text(value):
    """A column of bytes or str, which default_collate leaves as it is."""
    return isinstance(value, (list, tuple)) and value and isinstance(value[0], (bytes, str))


class _Layout:
    """What Pad and Concat have in common. `fields` names those it is for, all others are only put
    together: keys of a dict or positions of a tuple; None: all that have a length."""

    kind = None

    def __init__(self, most, lengths, fields):
        self.most = _count("most", most)
        self.lengths = bool(lengths)
        if isinstance(fields, str):
            fields = (fields,)
        self.fields = None if fields is None else tuple(fields)

    def __repr__(self):
        usual = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.__dict__.items()
            if name not in usual or value != usual[name].default
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    # ---- A batch, of samples and of what the engine gives.

    def __call__(self, samples):
        return self._whole(list(samples), self._collated)

    def of_engine(self, batch):
        """The batch whose fields are Variable, or stacked."""
        return self._whole(batch, self._taken)

    def _whole(self, given, part):
        """The outermost structure, in which the fields are named."""
        batch = part(given, self.fields is None, self.chosen)
        if isinstance(batch, Laid):
            batch = _expanded([batch])
            return batch if len(batch) > 1 else batch[0]
        return _expanded(batch)

    def chosen(self, name):
        return self.fields is None or name in self.fields

    def _collated(self, column, here, chosen=None):
        """`here`: this is for us. `chosen` tells it for the entries of the outermost structure."""
        first = column[0]
        if here and _has_rows(first):
            return self._laid([torch.as_tensor(value) for value in column])
        if isinstance(first, Mapping):
            return {
                name: self._collated(
                    [value[name] for value in column], chosen(name) if chosen else here
                )
                for name in first
            }
        if isinstance(first, (list, tuple)):
            if any(len(value) != len(first) for value in column):
                raise RuntimeError("each element in list of batch should be of equal size")
            parts = [
                self._collated(list(values), chosen(i) if chosen else here)
                for i, values in enumerate(zip(*column))
            ]
            return type(first)(*parts) if hasattr(first, "_fields") else parts
        return default_collate(column)

    def _taken(self, batch, here, chosen=None):
        """As _collated, of a batch."""
        if isinstance(batch, Variable):
            return self._with(batch.rows, batch.lengths)
        if isinstance(batch, torch.Tensor):
            return self._of_stacked(batch) if here and batch.dim() > 1 else batch
        if isinstance(batch, Mapping):
            return {
                name: self._taken(value, chosen(name) if chosen else here)
                for name, value in batch.items()
            }
        if _is_text(batch):
            return list(batch)
        if isinstance(batch, (list, tuple)):
            parts = [
                self._taken(value, chosen(i) if chosen else here) for i, value in enumerate(batch)
            ]
            return type(batch)(*parts) if hasattr(batch, "_fields") else parts
        return batch

    # ---- A field.

    def _laid(self, tensors):
        first = tensors[0]
        for tensor in tensors:
            if tensor.dim() != first.dim() or tensor.shape[1:] != first.shape[1:]:
                raise ValueError(
                    "samples may differ in their first dimension only; there are "
                    f"{list(first.shape)} and {list(tensor.shape)}"
                )
            if tensor.dtype != first.dtype:
                raise ValueError(f"samples have the types {first.dtype} and {tensor.dtype}")
        if self.most is not None:
            tensors = [tensor[: self.most] for tensor in tensors]
        lengths = torch.tensor([len(tensor) for tensor in tensors], dtype=torch.int64)
        return self._with(self._put_together(tensors, lengths), lengths)

    def engine_layout(self):
        """As Engine takes it: (kind, multiple, most, value)."""
        return (self.kind, 0, self.most or 0, 0.0)


def _expanded(batch):
    """The structure with what was added to its fields."""
    if isinstance(batch, Mapping):
        expanded = {}
        for name, value in batch.items():
            if not isinstance(value, Laid):
                expanded[name] = _expanded(value)
                continue
            expanded[name] = value.rows
            for suffix, added in value.added:
                if f"{name}_{suffix}" in batch:
                    raise ValueError(f"the samples have a field {name}_{suffix} of their own")
                expanded[f"{name}_{suffix}"] = added
        return expanded
    if isinstance(batch, (list, tuple)) and not _is_text(batch):
        expanded = []
        for value in batch:
            if isinstance(value, Laid):
                expanded += [value.rows, *(added for _, added in value.added)]
            else:
                expanded.append(_expanded(value))
        if hasattr(batch, "_fields") and len(expanded) == len(batch):
            return type(batch)(*expanded)
        return expanded
    return batch


class Pad(_Layout):
    """A collate_fn that pads samples to the length of the longest.

    value     of the padding; one that the type of the samples can hold
    multiple  the length is made a multiple of it
    most      samples with more rows are cut off there
    lengths   adds the lengths, int64: "x_lengths" behind "x" in a dict, in a tuple the next entry
    mask      adds a bool tensor that is True where there is no padding: "x_mask"
    fields    keys or positions of the fields to pad; None: all tensors of one dimension or more
    """

    kind = _engine.LAYOUT_PAD

    def __init__(self, value=0, multiple=None, most=None, lengths=True, mask=False, fields=None):
        if not isinstance(value, (int, float)):
            raise TypeError(f"value is a number; got {value!r}")
        if isinstance(value, int) and abs(value) > 1 << 53:  # the engine takes a double
            raise ValueError(f"value lies between -2**53 and 2**53; got {value!r}")
        self.value = value
        self.multiple = _count("multiple", multiple)
        super().__init__(most, lengths, fields)
        self.mask = bool(mask)

    def _width(self, longest):
        return longest if self.multiple is None else -(-longest // self.multiple) * self.multiple

    def _full(self, like, shape):
        _check_value(self.value, like.dtype)
        return like.new_full(shape, self.value)

    def _put_together(self, tensors, lengths):
        first = tensors[0]
        width = self._width(int(lengths.max()))
        rows = self._full(first, (len(tensors), width, *first.shape[1:]))
        # By index: the rows of an iteration over a tensor take no value that requires grad.
        for i, tensor in enumerate(tensors):
            rows[i, : len(tensor)] = tensor
        return rows

    def _of_stacked(self, stacked):
        samples, longest = stacked.shape[:2]
        length = longest if self.most is None else min(longest, self.most)
        width = self._width(length)
        rows = stacked
        if width != longest or length != longest:
            rows = self._full(stacked, (samples, width, *stacked.shape[2:]))
            rows[:, :length] = stacked[:, :length]
        return self._with(rows, torch.full((samples,), length, dtype=torch.int64))

    def _with(self, rows, lengths):
        added = [("lengths", lengths)] if self.lengths else []
        if self.mask:
            added.append(("mask", torch.arange(rows.shape[1]) < lengths[:, None]))
        return Laid(rows, added)

    def engine_layout(self):
        return (self.kind, self.multiple or 0, self.most or 0, float(self.value))


class Concat(_Layout):
    """A collate_fn that joins samples, one behind the other, without padding.

    most      samples with more rows are cut off there
    lengths   adds the lengths, int64: "x_lengths" behind "x" in a dict, in a tuple the next entry
    offsets   adds where each sample begins, and at last where all end, int64: "x_offsets"
    fields    keys or positions of the fields to join; None: all tensors of one dimension or more
    """

    kind = _engine.LAYOUT_CONCAT

    def __init__(self, most=None, lengths=True, offsets=False, fields=None):
        super().__init__(most, lengths, fields)
        self.offsets = bool(offsets)

    def _put_together(self, tensors, lengths):
        return torch.cat(tensors)

    def _of_stacked(self, stacked):
        kept = stacked if self.most is None else stacked[:, : self.most]
        lengths = torch.full((kept.shape[0],), kept.shape[1], dtype=torch.int64)
        return self._with(kept.reshape(-1, *kept.shape[2:]), lengths)

    def _with(self, rows, lengths):
        added = [("lengths", lengths)] if self.lengths else []
        if self.offsets:
            ends = torch.cumsum(lengths, 0)
            added.append(("offsets", torch.cat((ends.new_zeros(1), ends))))
        return Laid(rows, added)


def _check_value(value, dtype):
    """What cannot be held is an error, here as in the engine; torch would cut 0.5 to 0."""
    if dtype == torch.bool:
        return
    if dtype.is_floating_point or dtype.is_complex:
        fits = not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    else:
        limits = torch.iinfo(dtype)
        fits = math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max
    if not fits:
        name = str(dtype).replace("torch.", "")
        raise ValueError(f"samples of type {name} cannot be padded with {value!r}")


CLASSES = (Pad, Concat)
