"""leat.Pad and leat.Concat: batches of samples that differ in length, as a collate_fn.

They are plain collate functions, which also work with torch's own DataLoader. When leat.DataLoader
reads the dataset in C, the engine collates (src/load/batch_layout.h) and the batches are the same:

    samples ── __call__()   each field is collated here ────┐
                                                            ├─► _flatten(): the batch
    engine  ── of_engine()  fields that the engine padded, ─┘
                            joined, or only stacked

A field is padded or joined when its samples are tensors or arrays of one dimension or more; the
first dimension is the length. Other fields are collated as default_collate does. Tensors that are
added stand behind their field: in a dict as "x_lengths" behind "x", in a tuple or list as the next
entry. A sample that is a single tensor gives a list.
"""

import inspect
import math
import operator
from collections.abc import Mapping

import numpy
import torch
from torch.utils.data import default_collate

from leat import _engine


class CollatedField:
    """A padded or joined field, and the tensors added to it as (suffix, tensor)."""

    def __init__(self, rows, added):
        self.rows = rows
        self.added = added


class VariableField:
    """What the engine made of a field whose samples differ in length."""

    def __init__(self, rows, lengths):
        self.rows = rows
        self.lengths = lengths


def _positive(name, value):
    if value is None:
        return None
    if isinstance(value, bool) or operator.index(value) < 1:
        raise ValueError(f"{name} must be a positive integer or None; got {value!r}")
    return operator.index(value)


def _has_length(value):
    if isinstance(value, numpy.ndarray):
        return value.ndim > 0 and value.dtype.kind not in "SUO"
    return isinstance(value, torch.Tensor) and value.dim() > 0


def _is_bytes_list(value):
    """A column of bytes or str, which default_collate leaves as it is."""
    return isinstance(value, (list, tuple)) and value and isinstance(value[0], (bytes, str))


class _Layout:
    """The common part of Pad and Concat. `fields` names the fields they are for (keys of a dict or
    positions of a tuple); None: all that have a length."""

    kind = None

    def __init__(self, max_length, return_lengths, fields):
        self.max_length = _positive("max_length", max_length)
        self.return_lengths = bool(return_lengths)
        if isinstance(fields, str):
            fields = (fields,)
        self.fields = None if fields is None else tuple(fields)

    def __repr__(self):
        parameters = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.__dict__.items()
            if name not in parameters or value != parameters[name].default
        ]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def is_for(self, name):
        return self.fields is None or name in self.fields

    # ---- A batch. `selected`: the layout is for this value. `select` decides it for the entries of
    # the outermost structure, where fields are named.

    def __call__(self, samples):
        return self._batch(list(samples), self._collate)

    def of_engine(self, batch):
        """The batch whose fields are VariableField, or stacked."""
        return self._batch(batch, self._of_engine)

    def _batch(self, given, collate):
        batch = collate(given, self.fields is None, self.is_for)
        if isinstance(batch, CollatedField):
            batch = _flatten([batch])
            return batch if len(batch) > 1 else batch[0]
        return _flatten(batch)

    def _collate(self, column, selected, select=None):
        first = column[0]
        if selected and _has_length(first):
            return self._collate_field([torch.as_tensor(value) for value in column])
        if isinstance(first, Mapping):
            return {
                name: self._collate(
                    [value[name] for value in column], select(name) if select else selected
                )
                for name in first
            }
        if isinstance(first, (list, tuple)):
            if any(len(value) != len(first) for value in column):
                raise RuntimeError("each element in list of batch should be of equal size")
            parts = [
                self._collate(list(values), select(i) if select else selected)
                for i, values in enumerate(zip(*column))
            ]
            return type(first)(*parts) if hasattr(first, "_fields") else parts
        return default_collate(column)

    def _of_engine(self, batch, selected, select=None):
        if isinstance(batch, VariableField):
            return self._with_added(batch.rows, batch.lengths)
        if isinstance(batch, torch.Tensor):
            return self._of_stacked(batch) if selected and batch.dim() > 1 else batch
        if isinstance(batch, Mapping):
            return {
                name: self._of_engine(value, select(name) if select else selected)
                for name, value in batch.items()
            }
        if _is_bytes_list(batch):
            return list(batch)
        if isinstance(batch, (list, tuple)):
            parts = [
                self._of_engine(value, select(i) if select else selected)
                for i, value in enumerate(batch)
            ]
            return type(batch)(*parts) if hasattr(batch, "_fields") else parts
        return batch

    # ---- A field.

    def _collate_field(self, tensors):
        first = tensors[0]
        for tensor in tensors:
            if tensor.dim() != first.dim() or tensor.shape[1:] != first.shape[1:]:
                raise ValueError(
                    "samples may differ in their first dimension only; there are "
                    f"{list(first.shape)} and {list(tensor.shape)}"
                )
            if tensor.dtype != first.dtype:
                raise ValueError(f"samples have the types {first.dtype} and {tensor.dtype}")
        if self.max_length is not None:
            tensors = [tensor[: self.max_length] for tensor in tensors]
        lengths = torch.tensor([len(tensor) for tensor in tensors], dtype=torch.int64)
        return self._with_added(self._join(tensors, lengths), lengths)

    def engine_layout(self):
        """(kind, multiple, limit, value) for _engine.Engine."""
        return (self.kind, 0, self.max_length or 0, 0.0)


def _flatten(batch):
    """The batch with the added tensors behind their fields."""
    if isinstance(batch, Mapping):
        flat = {}
        for name, value in batch.items():
            if not isinstance(value, CollatedField):
                flat[name] = _flatten(value)
                continue
            flat[name] = value.rows
            for suffix, added in value.added:
                if f"{name}_{suffix}" in batch:
                    raise ValueError(
                        f"the samples already have a field {name}_{suffix}, which {name} would add"
                    )
                flat[f"{name}_{suffix}"] = added
        return flat
    if isinstance(batch, (list, tuple)) and not _is_bytes_list(batch):
        flat = []
        for value in batch:
            if isinstance(value, CollatedField):
                flat += [value.rows, *(added for _, added in value.added)]
            else:
                flat.append(_flatten(value))
        if hasattr(batch, "_fields") and len(flat) == len(batch):
            return type(batch)(*flat)
        return flat
    return batch


class Pad(_Layout):
    """A collate_fn that pads samples to the length of the longest.

    padding_value       the type of the samples must be able to hold it
    pad_to_multiple_of  round the length up to a multiple of it
    max_length          cut longer samples to it
    return_lengths      add the lengths, int64: "x_lengths" behind "x" in a dict, the next entry in
                        a tuple
    return_mask         add a bool tensor that is True where there is no padding: "x_mask"
    fields              keys or positions of the fields to pad; None: all tensors of one dimension
                        or more
    """

    kind = _engine.LAYOUT_PAD

    def __init__(
        self,
        padding_value=0,
        pad_to_multiple_of=None,
        max_length=None,
        return_lengths=True,
        return_mask=False,
        fields=None,
    ):
        if not isinstance(padding_value, (int, float)):
            raise TypeError(f"padding_value must be a number; got {padding_value!r}")
        if isinstance(padding_value, int) and abs(padding_value) > 1 << 53:
            # The engine takes a double.
            raise ValueError(
                f"padding_value must be between -2**53 and 2**53; got {padding_value!r}"
            )
        self.padding_value = padding_value
        self.pad_to_multiple_of = _positive("pad_to_multiple_of", pad_to_multiple_of)
        super().__init__(max_length, return_lengths, fields)
        self.return_mask = bool(return_mask)

    def _width(self, longest):
        multiple = self.pad_to_multiple_of or 1
        return -(-longest // multiple) * multiple

    def _filled(self, like, shape):
        _check_value(self.padding_value, like.dtype)
        return like.new_full(shape, self.padding_value)

    def _join(self, tensors, lengths):
        first = tensors[0]
        width = self._width(int(lengths.max()))
        rows = self._filled(first, (len(tensors), width, *first.shape[1:]))
        # By index: iterating over `rows` gives views that accept no value that requires grad.
        for i, tensor in enumerate(tensors):
            rows[i, : len(tensor)] = tensor
        return rows

    def _of_stacked(self, stacked):
        samples, longest = stacked.shape[:2]
        length = longest if self.max_length is None else min(longest, self.max_length)
        width = self._width(length)
        rows = stacked
        if width != longest or length != longest:
            rows = self._filled(stacked, (samples, width, *stacked.shape[2:]))
            rows[:, :length] = stacked[:, :length]
        return self._with_added(rows, torch.full((samples,), length, dtype=torch.int64))

    def _with_added(self, rows, lengths):
        added = [("lengths", lengths)] if self.return_lengths else []
        if self.return_mask:
            added.append(("mask", torch.arange(rows.shape[1]) < lengths[:, None]))
        return CollatedField(rows, added)

    def engine_layout(self):
        return (
            self.kind,
            self.pad_to_multiple_of or 0,
            self.max_length or 0,
            float(self.padding_value),
        )


class Concat(_Layout):
    """A collate_fn that joins samples without padding.

    max_length      cut longer samples to it
    return_lengths  add the lengths, int64: "x_lengths" behind "x" in a dict, the next entry in a
                    tuple
    return_offsets  add where each sample begins, and where the last one ends, int64: "x_offsets"
    fields          keys or positions of the fields to join; None: all tensors of one dimension or
                    more
    """

    kind = _engine.LAYOUT_CONCAT

    def __init__(self, max_length=None, return_lengths=True, return_offsets=False, fields=None):
        super().__init__(max_length, return_lengths, fields)
        self.return_offsets = bool(return_offsets)

    def _join(self, tensors, lengths):
        return torch.cat(tensors)

    def _of_stacked(self, stacked):
        kept = stacked if self.max_length is None else stacked[:, : self.max_length]
        lengths = torch.full((kept.shape[0],), kept.shape[1], dtype=torch.int64)
        return self._with_added(kept.reshape(-1, *kept.shape[2:]), lengths)

    def _with_added(self, rows, lengths):
        added = [("lengths", lengths)] if self.return_lengths else []
        if self.return_offsets:
            ends = torch.cumsum(lengths, 0)
            added.append(("offsets", torch.cat((ends.new_zeros(1), ends))))
        return CollatedField(rows, added)


def _check_value(value, dtype):
    """An error, as in the engine, if the type cannot hold the value: torch would cut 0.5 to 0."""
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
