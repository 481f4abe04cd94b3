"""leat.data.Ragged, Documents and Packed: samples of different length, and rows made of them.

Ragged       samples in memory: a list of tensors, or all rows and where each sample begins
Documents    documents of a token file with a Megatron index
Packed       samples of one of these, joined and cut into rows of one length
"""

import operator
import os

import torch
from torch.utils.dlpack import from_dlpack

from leat import _engine
from leat.data.structured import (
    SourceDataset,
    Structured,
    as_tensor,
    overridden,
    structure_of,
)
from leat.loader.engine_spec import DTYPES, EngineSpec, single_field, why_not_plain


class Ragged(Structured):
    """Tensors or arrays of different length in memory.

    Ragged([a, b, c])            a sample is one of the tensors, which may differ in their first
                                 dimension only; they are joined once
    Ragged((values, offsets))    sample i is values[offsets[i] : offsets[i + 1]]
    Ragged(texts, labels), Ragged(text=texts, label=labels)   samples are tuples (a namedtuple gives
                                 namedtuples) or dicts; a field given as a tensor or an array has
                                 one row per sample
    """

    def __init__(self, *arrays, **named):
        structure = structure_of(arrays, named)
        if len(arrays) == 1 and not isinstance(structure, dict) and not _is_namedtuple(structure):
            structure = _SingleField(structure)
        self._set_fields(structure, _rows_and_offsets)
        if isinstance(structure, _SingleField):
            self.kind = None
        if all(offsets is None for _, offsets in self.fields):
            raise ValueError("no field differs in length: use leat.data.Tensors")
        counts = {len(v) if offsets is None else len(offsets) - 1 for v, offsets in self.fields}
        if len(counts) > 1:
            raise ValueError(f"the fields have different numbers of samples: {sorted(counts)}")
        self._count = counts.pop()

    def __len__(self):
        return self._count

    def _row(self, field, index):
        values, offsets = field
        return values[index] if offsets is None else values[offsets[index] : offsets[index + 1]]

    def lengths(self):
        """The length of each sample in the first variable field, as an int64 tensor."""
        return next(offsets.diff() for _, offsets in self.fields if offsets is not None)

    def source(self):
        """The engine's source. It holds references to the tensors."""
        reason = self._why_not_plain()
        if reason:
            raise TypeError(reason)
        return _engine.source_ragged(self._engine_fields(), len(self), self.fields)

    def _why_not_plain(self):
        for number, (values, offsets) in enumerate(self.fields):
            reason = why_not_plain(values)
            if reason == "is empty" and offsets is not None and 0 not in values.shape[1:]:
                continue  # samples may all be empty
            if reason:
                return f"field {number} {reason}"
        return None

    def _engine_fields(self):
        return tuple(
            (None, DTYPES[v.dtype], v.data_ptr(), tuple(v.shape), 0 if o is None else o.data_ptr())
            for v, o in self.fields
        )

    def engine_spec(self):
        reason = self._why_not_plain() or (None if len(self) else "there are no samples")
        if reason:
            return reason
        variable = [f for f, (_, offsets) in enumerate(self.fields) if offsets is not None]
        key = ("ragged", self._engine_fields(), len(self))
        shown = ", ".join(_describe(*field) for field in self.fields[:4])
        more = f" and {len(self.fields) - 4} more" if len(self.fields) > 4 else ""
        text = f"Ragged in memory: {shown}{more}, {len(self)} samples"
        return EngineSpec(key, self.source, self.build_batch, text, variable)


def _is_namedtuple(value):
    return isinstance(value, tuple) and hasattr(value, "_fields")


class _SingleField(tuple):
    """A single field, which may be a list or a tuple."""

    def __new__(cls, field):
        return super().__new__(cls, (field,))


def _describe(values, offsets):
    shape = [*(["*"] if offsets is not None else []), *map(str, values.shape[1:])]
    return f"{str(values.dtype).replace('torch.', '')}[{'x'.join(shape)}]"


def _rows_and_offsets(given):
    """(rows, offsets); offsets are None for a field of one size."""
    if isinstance(given, list):
        return _joined(given)
    if isinstance(given, tuple):
        if len(given) != 2:
            raise TypeError("a tuple must be (values, offsets); pass samples as a list")
        return _with_offsets(*given)
    values = as_tensor(given).contiguous()
    if values.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows")
    return values, None


def _joined(samples):
    if not samples:
        raise ValueError("there are no samples")
    tensors = [as_tensor(sample) for sample in samples]
    like = next((tensor for tensor in tensors if tensor.numel()), tensors[0])
    for i, tensor in enumerate(tensors):
        if tensor.dim() == 0:
            raise ValueError(f"sample {i} is a single number: it has no length")
        if isinstance(samples[i], (list, tuple)) and not len(tensor):
            tensors[i] = like[:0]  # an empty list has no type of its own
        elif tensor.dtype != like.dtype or tensor.shape[1:] != like.shape[1:]:
            raise ValueError(
                f"sample {i} is {_describe(tensor, ())}, others are {_describe(like, ())}: they "
                "may differ in the first dimension only"
            )
    offsets = torch.zeros(len(tensors) + 1, dtype=torch.int64)
    torch.cumsum(torch.tensor([len(tensor) for tensor in tensors]), 0, out=offsets[1:])
    return torch.cat(tensors), offsets


def _with_offsets(values, offsets):
    values, offsets = as_tensor(values).contiguous(), as_tensor(offsets)
    if values.dim() == 0:
        raise ValueError("a tensor without dimensions has no rows")
    if offsets.dim() != 1 or not len(offsets) or offsets.dtype.is_floating_point:
        raise ValueError("offsets must be integers in one dimension, one more than the samples")
    offsets = offsets.to("cpu", torch.int64).contiguous()
    falls = (offsets.diff() < 0).any()
    if offsets[0] < 0 or falls or offsets[-1] > len(values):
        raise ValueError(
            f"offsets must rise and lie between 0 and {len(values)}, the number of rows"
        )
    return values, offsets


class Documents(SourceDataset):
    """The documents of a token file, each an int64 tensor of its own length.

    Documents("corpus")    corpus.bin and Megatron's corpus.idx beside it
    index                  path of the .idx, if it has another name
    """

    def __init__(self, path, *, index=None):
        path = os.fspath(path)
        stem = path[:-4] if path.endswith(".bin") else path
        self.path = stem + ".bin"
        self.index = stem + ".idx" if index is None else os.fspath(index)
        self._open()

    def _open(self):
        self._source = self._source_of(_engine.DTYPE_int64)

    def _source_of(self, dtype):
        return _engine.source_documents(os.fsencode(self.path), os.fsencode(self.index), dtype)

    def _samples(self, fields):
        return [from_dlpack(capsule) for capsule in fields[0]]

    def lengths(self):
        """The number of tokens of each document, as an int64 tensor."""
        lengths = torch.empty(len(self), dtype=torch.int64)
        _engine.source_lengths(self._source, 0, lengths.data_ptr())
        return lengths

    def source(self):
        """The engine's source of the tokens as they lie in the file, not widened to int64."""
        return self._source_of(_engine.DTYPE_raw)

    def engine_spec(self):
        if not len(self):
            return f"{self.path} has no documents"
        source = self._source
        text = f"Documents, mapped: {source.text}"
        return EngineSpec(("documents", id(source)), lambda: source, single_field, text, (0,))


class Packed(SourceDataset):
    """The documents of a Ragged or Documents, joined and cut into rows of one length, int64.

    Packed(leat.data.Documents("corpus"), 2048)
    separator_id      a token put between two documents; None: none
    return_segments   samples are dicts of "tokens" and "segments": which document of the row a
                      token belongs to, from 0, and -1 for padding
    return_positions  likewise "positions": the token's position in the document's part of the row
    seed              shuffles the documents once, before they are joined; None: as they are
    drop_last         False: a last row that is not full is kept and padded
    padding_value     the token to pad it with
    """

    def __init__(
        self,
        dataset,
        seq_length,
        *,
        separator_id=None,
        return_segments=False,
        return_positions=False,
        seed=None,
        drop_last=True,
        padding_value=0,
    ):
        _check_packable(dataset)
        self.dataset = dataset
        self.seq_length = operator.index(seq_length)
        self._given = (
            self.seq_length,
            None if seed is None else operator.index(seed),
            None if separator_id is None else operator.index(separator_id),
            None if drop_last else operator.index(padding_value),
            bool(return_segments),
            bool(return_positions),
        )
        fields = (("tokens", True), ("segments", return_segments), ("positions", return_positions))
        self.names = tuple(name for name, wanted in fields if wanted)
        self._open()

    def _open(self):
        self._source = _engine.source_packed(self.dataset.source(), *self._given)

    def build(self, fields):
        return fields[0] if len(self.names) == 1 else dict(zip(self.names, fields))

    def _samples(self, fields):
        columns = [from_dlpack(field).unbind() for field in fields]
        return [self.build(fields) for fields in zip(*columns)]

    def engine_spec(self):
        if not len(self):
            return f"the documents do not fill one row of {self.seq_length} tokens"
        source = self._source
        text = f"Packed, {type(self.dataset).__name__}: {source.text}"
        return EngineSpec(("packed", id(source)), lambda: source, self.build, text)


def _check_packable(dataset):
    if not isinstance(dataset, (Ragged, Documents)):
        raise TypeError(
            f"only Ragged and Documents can be packed, not {type(dataset).__qualname__}"
        )
    own = overridden(dataset, Ragged if isinstance(dataset, Ragged) else Documents)
    if own:
        raise TypeError(
            f"{type(dataset).__qualname__} has its own {' and '.join(own)}, which Packed would not "
            "call: pack the dataset without it"
        )
    if isinstance(dataset, Ragged):
        values, _ = dataset.fields[0]
        integers = not (values.is_floating_point() or values.is_complex())
        integers = integers and values.dtype != torch.bool
        if len(dataset.fields) > 1 or values.dim() > 1 or not integers:
            raise TypeError("packed samples must be a single field of integers in one dimension")
