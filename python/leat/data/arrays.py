"""leat.data.Tensors, Npy and Tokens: samples of one shape, in memory or in memory-mapped files.

Each is an ordinary torch Dataset. engine_spec() also describes it to leat.DataLoader, whose engine
then reads the samples in C; when the engine cannot, it returns the reason as a text.

Not read here: compressed .npz (they cannot be mapped), object arrays and strings.
"""

import ast
import operator
import os
import struct
import zipfile

import numpy
import torch
from torch.utils.data import Dataset
from torch.utils.dlpack import from_dlpack

from leat import _engine
from leat.data.structured import (
    SourceDataset,
    Structured,
    as_tensor,
    check_index,
    structure_of,
)
from leat.loader.engine_spec import NAMES, EngineSpec, single_field, spec_of_tensors


class Tensors(Structured):
    """Tensors or arrays in memory; a sample is one row of each.

    Tensors(x)             a sample is a tensor
    Tensors(x, y)          a sample is (x[i], y[i]), a batch is a list of two tensors
    Tensors(image=x, label=y), Tensors({"image": x, "label": y})   dicts of tensors
    """

    def __init__(self, *arrays, **named):
        self._set_fields(structure_of(arrays, named), as_tensor)
        if not self.fields:
            raise ValueError("no tensor is given")
        for tensor in self.fields:
            if tensor.dim() == 0:
                raise ValueError("a tensor without dimensions has no rows")
        lengths = {tensor.shape[0] for tensor in self.fields}
        if len(lengths) > 1:
            raise ValueError(f"the tensors have different lengths: {sorted(lengths)}")

    def __len__(self):
        return self.fields[0].shape[0]

    def engine_spec(self):
        return spec_of_tensors(self.fields, self.build_batch, "Tensors")


class Npy(SourceDataset, Structured):
    """.npy files, memory-mapped; a sample is one row of each.

    Npy("x.npy"), Npy("x.npy", "y.npy") and Npy(image="x.npy", label="y.npy") give samples as
    Tensors does. Npy("data.npz") gives a dict of the arrays in it; they must not be compressed. An
    array of a structured type gives a dict of its fields.

    The constructor does not verify the checksums of a .npz, because it would have to read the whole
    file: call check() for that.
    """

    def __init__(self, *paths, **named):
        structure = structure_of(paths, named)
        if isinstance(structure, (str, os.PathLike)) and os.fspath(structure).endswith(".npz"):
            structure = _npz_members(os.fspath(structure))
        self._set_fields(structure, _npy_file)
        self._open()

    def _open(self):
        parts = tuple((os.fsencode(path), offset, size) for path, offset, size in self.fields)
        self._source = _engine.source_npy(parts)
        self._structured = []  # of each field: its numpy type, if that is structured
        for (path, _, _), (_, dtype, _, descr, _) in zip(self.fields, self._source.fields):
            structured = _structured_type(descr) if dtype == "raw" else None
            if dtype not in NAMES and structured is None:
                raise ValueError(f"{path} has the type {descr or dtype}, which torch does not have")
            self._structured.append(structured)

    def _samples(self, fields):
        fields = [from_dlpack(field) for field in fields]
        count = len(fields[0])
        fields = self._unpacked(fields)
        return [self.build([_row(field, i) for field in fields]) for i in range(count)]

    def build_batch(self, fields):
        return super().build_batch(self._unpacked(fields))

    def _unpacked(self, fields):
        """Replaces the fields of a structured type, which the engine gives as bytes, by dicts of tensors."""
        return [
            field if dtype is None else _fields_of_items(field, dtype)
            for field, dtype in zip(fields, self._structured)
        ]

    def check(self):
        """Reads every .npz and compares it with its checksums. Raises ValueError where one differs.
        A .npy file has no checksum."""
        for path in {path for path, _, size in self.fields if size >= 0}:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"{path}: {damaged} is damaged: its checksum does not match")

    def engine_spec(self):
        source = self._source
        if not len(self):
            return f"{self.fields[0][0]} is empty"
        shown = ", ".join(_describe(field) for field in source.fields[:4])
        more = f" and {len(source.fields) - 4} more" if len(source.fields) > 4 else ""
        text = f"Npy, mapped: {shown}{more}, {len(self)} samples"
        return EngineSpec(("npy", id(source)), lambda: source, self.build_batch, text)


def _npy_file(path):
    """(path, offset of the array in the file, its size in bytes). Size -1: up to the end."""
    return path if isinstance(path, tuple) else (os.fspath(path), 0, -1)


def _describe(field):
    _, dtype, _, _, shape = field
    return f"{'struct' if dtype == 'raw' else dtype}[{'x'.join(map(str, shape))}]"


# What zipfile raises for damaged archives.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    UnicodeDecodeError,
    struct.error,
)


def _npz_members(path):
    """{name: (path, offset, size in bytes)} of the arrays in a .npz. What the archive's directory
    says of a member must agree with the header in front of it."""
    members = {}
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            entries = archive.infolist()
            starts = [*sorted(entry.header_offset for entry in entries), archive.start_dir]
            ends = dict(zip(starts, starts[1:]))
            for entry in entries:
                name = entry.filename
                name = name[:-4] if name.endswith(".npy") else name
                if name in members:
                    raise ValueError(f"{path}: {name} occurs twice")
                start = _data_offset(path, archive, file, entry, ends[entry.header_offset])
                members[name] = path, start, entry.file_size
    except _ZIP_ERRORS as error:
        if getattr(error, "filename", None) is not None:  # it cannot be opened
            raise
        raise ValueError(f"{path} is damaged: {error}") from error
    if not members:
        raise ValueError(f"{path} has no arrays in it")
    return members


def _data_offset(path, archive, file, entry, end):
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(
            f"{path}: {entry.filename} is compressed and cannot be mapped: write the file with "
            "numpy.savez(), not numpy.savez_compressed()"
        )
    archive.open(entry).close()  # checks the member's header
    # The data begins after the header's name and extra field, whose lengths are read from the header
    # itself: the extra field may be longer than the directory says.
    file.seek(entry.header_offset + 26)
    start = entry.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
    if entry.compress_size != entry.file_size or start + entry.file_size > end:
        raise ValueError(f"{path}: {entry.filename} is not as long as the archive says")
    return start


# ---- Structured types.


def _structured_type(descr):
    """The structured type that `descr` of a .npy header describes. None: it is not structured, or torch
    lacks the type of one of its fields."""
    dtype = numpy.lib.format.descr_to_dtype(ast.literal_eval(descr))
    return dtype if dtype.names and _torch_has_fields(dtype) else None


def _torch_has_fields(dtype):
    bases = [dtype.fields[name][0].base for name in dtype.names]
    return all(_torch_has_fields(b) if b.names else b.name in NAMES for b in bases)


def _fields_of_items(items, dtype):
    """A dict of tensors. The last dimension of the tensor `items` is the bytes of an item."""
    fields = {}
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        part = items[..., offset : offset + kind.itemsize]
        part = part.reshape(*items.shape[:-1], *kind.shape, kind.base.itemsize)
        parse = _fields_of_items if kind.base.names else _numbers_of_items
        fields[name] = parse(part, kind.base)
    return fields


def _numbers_of_items(items, dtype):
    if not dtype.isnative:
        numbers = 2 if dtype.kind == "c" else 1
        items = items.unflatten(-1, (numbers, -1)).flip(-1).flatten(-2)
    # Copied, because a view of another type must begin at a multiple of its size.
    return (
        items.clone(memory_format=torch.contiguous_format)
        .view(getattr(torch, dtype.name))
        .squeeze(-1)
    )


def _row(field, i):
    if isinstance(field, dict):
        return {name: _row(part, i) for name, part in field.items()}
    return field[i]


# ---- Tokens.


class Tokens(Dataset):
    """A flat file of tokens, memory-mapped; a sample is a slice of seq_length tokens, as int64.

    Tokens("train.bin", seq_length=2048)    uint16 without a header, the usual format
    stride    tokens from the start of a slice to the start of the next; None: seq_length, so that
              slices do not overlap. For targets shifted by one: seq_length=2049 and stride=2048
    dtype     'uint16', 'uint32', 'int32' or another type of integer
    offset    bytes before the first token
    index     Megatron's .idx of the file; it gives the type, and dtype and offset are ignored
    """

    TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")

    def __init__(self, path, seq_length, *, stride=None, dtype="uint16", offset=0, index=None):
        self.path = os.fspath(path)
        self.seq_length = operator.index(seq_length)
        self.stride = self.seq_length if stride is None else operator.index(stride)
        self.offset = operator.index(offset)
        self.index = None if index is None else os.fspath(index)
        self.dtype = str(numpy.dtype(dtype))
        if self.dtype not in self.TYPES:
            raise ValueError(f"dtype must be one of {', '.join(self.TYPES)}; got {dtype!r}")
        if self.seq_length < 1 or self.stride < 1 or self.offset < 0:
            raise ValueError("seq_length and stride must be at least 1, offset at least 0")
        self._open()

    def _open(self):
        count = None
        if self.index is not None:
            self.dtype, count = _read_index(self.index)
            self.offset = 0
        dtype = numpy.dtype(self.dtype).newbyteorder("<")
        size = os.path.getsize(self.path) - self.offset
        if count is None:
            if size < 0 or size % dtype.itemsize:
                raise ValueError(
                    f"{self.path}: {size} bytes are not a multiple of the size of {self.dtype}: "
                    "the file is cut short, or dtype is wrong"
                )
            count = size // dtype.itemsize
        elif count * dtype.itemsize > size:
            raise ValueError(f"{self.path} has {size} bytes, fewer than its index says")
        if count:
            self._tokens = numpy.memmap(self.path, dtype, "r", self.offset, (count,))
        else:
            self._tokens = numpy.empty(0, dtype)

    def __len__(self):
        return max((len(self._tokens) - self.seq_length) // self.stride + 1, 0)

    def __getitem__(self, index):
        start = check_index(index, len(self)) * self.stride
        return torch.from_numpy(self._tokens[start : start + self.seq_length].astype(numpy.int64))

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def engine_spec(self):
        if not len(self):
            return f"{self.path} has fewer than {self.seq_length} tokens"
        dtype = getattr(_engine, "DTYPE_" + self.dtype)
        index = None if self.index is None else os.fsencode(self.index)
        path = os.fsencode(self.path)
        given = (path, index, dtype, self.offset, self.seq_length, self.stride)
        text = f"Tokens, mapped: {self.dtype}, {len(self)} slices of {self.seq_length} as int64"
        key = ("tokens", given, id(self._tokens))
        return EngineSpec(key, lambda: _engine.source_tokens(*given), single_field, text)

    def __getstate__(self):
        return {key: value for key, value in self.__dict__.items() if key != "_tokens"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


def _read_index(path):
    """(type, number of tokens) of Megatron's .idx; src/load/source/tokens/megatron_index.h describes
    the format."""
    types = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 34 or raw[:9] != b"MMIDIDX\0\0":
        raise ValueError(f"{path} is not a Megatron index")
    version, code, sequences = struct.unpack_from("<QBQ", raw, 9)
    if version != 1 or code not in types or sequences > (len(raw) - 34) // 12:
        raise ValueError(f"{path} is damaged or has an unknown version")
    lengths = numpy.frombuffer(raw, "<i4", sequences, 34).astype(numpy.int64)
    starts = numpy.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences)
    ends = numpy.cumsum(lengths)
    if (lengths < 0).any() or (
        starts != (ends - lengths) * numpy.dtype(types[code]).itemsize
    ).any():
        raise ValueError(f"{path}: its sequences do not follow each other")
    return types[code], int(ends[-1]) if sequences else 0
