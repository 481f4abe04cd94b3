"""leat.data.Tensors, Npy and Tokens: samples of one shape that lie in memory or in mapped files."""

import math
import operator
import os
import struct
import zipfile

import numpy
import torch
from torch.utils.data import Dataset

from leat import _engine
from leat.data.structured import Structured, as_tensor, one_index, structure_of
from leat.loader.engine_spec import (
    NAMES,
    EngineSpec,
    describe_rows,
    single_field,
    spec_of_tensors,
)


class Tensors(Structured):
    """Tensors or arrays in memory, a sample being one row of each.

    Tensors(x)             a sample is a tensor
    Tensors(x, y)          a sample is (x[i], y[i]), a batch a list of two tensors
    Tensors(image=x, label=y), Tensors({"image": x, "label": y})   dicts of tensors
    """

    def __init__(self, *arrays, **named):
        self._take_leaves(structure_of(arrays, named), as_tensor)
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

    def engine_spec(self):
        return spec_of_tensors(self.leaves, self.build_batch, "Tensors")


class Npy(Structured):
    """.npy files, memory-mapped, a sample being one row of each.

    Npy("x.npy"), Npy("x.npy", "y.npy") and Npy(image="x.npy", label="y.npy") give samples as
    Tensors does; Npy("data.npz") gives a dict with the arrays in it, which must not be compressed.
    An array of a structured type gives a dict of its fields.

    The checksums of a .npz are looked at by check() alone: that reads all of it.
    """

    def __init__(self, *paths, **named):
        structure = structure_of(paths, named)
        if isinstance(structure, (str, os.PathLike)) and os.fspath(structure).endswith(".npz"):
            structure = _npz_parts(os.fspath(structure))
        self._take_leaves(structure, _npy_part)
        self._open()
        lengths = {array.shape[0] for array in self._arrays}
        if len(lengths) > 1:
            raise ValueError(f"the files have different lengths: {sorted(lengths)}")

    def _open(self):
        self._arrays = [_mapped(*part) for part in self.leaves]

    def __len__(self):
        return self._arrays[0].shape[0]

    def __getitem__(self, index):
        index = one_index(index, len(self))
        return self.build([tensor_of_row(array[index]) for array in self._arrays])

    def build_batch(self, leaves):
        batch = [
            _of_raw(leaf, array.dtype) if array.dtype.names else leaf
            for leaf, array in zip(leaves, self._arrays)
        ]
        return super().build_batch(batch)

    def check(self):
        """Compares what lies in a .npz with the checksums it has; ValueError where one differs. A
        .npy has none."""
        for path in {path for path, _, size in self.leaves if size >= 0}:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"{path}: {damaged} is damaged: its checksum is another")

    def engine_spec(self):
        arrays = self._arrays
        for (path, _, _), array in zip(self.leaves, arrays):
            dtype = array.dtype
            kinds = (
                [dtype] if not dtype.names else [dtype.fields[name][0].base for name in dtype.names]
            )
            # The engine turns the bytes of plain items; those inside of structured ones are as they are.
            if any(k.name not in NAMES or (dtype.names and not k.isnative) for k in kinds):
                return f"{path} has the type {dtype}"
            if array.size == 0:
                return f"{path} is empty"
        parts = tuple((os.fsencode(path), offset, size) for path, offset, size in self.leaves)
        text = f"Npy, mapped: {describe_rows(arrays)}, {len(self)} samples"
        key = ("npy", parts, id(arrays))
        return EngineSpec(key, lambda: _engine.source_npy(parts), self.build_batch, text)

    def __getstate__(self):  # a map is not pickled with its contents
        return {key: value for key, value in self.__dict__.items() if key != "_arrays"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


def _npy_part(path):
    """(path, where in the file the .npy begins, its bytes); -1: to the end."""
    return path if isinstance(path, tuple) else (os.fspath(path), 0, -1)


# What zipfile raises of archives that are none.
_DAMAGE = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    UnicodeDecodeError,
    struct.error,
)


def _npz_parts(path):
    """Where each member of the archive lies. Two places tell it, the directory at the end and the
    header before the member: where they do not agree, nothing is read."""
    parts = {}
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            members = archive.infolist()
            starts = [*sorted(member.header_offset for member in members), archive.start_dir]
            ends = dict(zip(starts, starts[1:]))
            for member in members:
                name = member.filename
                name = name[:-4] if name.endswith(".npy") else name
                if name in parts:
                    raise ValueError(f"{path}: {name} is there twice")
                start = _start_of(path, archive, file, member, ends[member.header_offset])
                parts[name] = path, start, member.file_size
    except _DAMAGE as error:
        if getattr(error, "filename", None) is not None:  # it cannot be opened
            raise
        raise ValueError(f"{path} is damaged: {error}") from error
    if not parts:
        raise ValueError(f"{path} has no arrays in it")
    return parts


def _start_of(path, archive, file, member, end):
    """Where the bytes of a member begin."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(
            f"{path}: {member.filename} is compressed and cannot be mapped; numpy.savez() writes "
            "it so that it can"
        )
    archive.open(member).close()  # the header is one, and of this member
    # The name and what follows it are as long as that header says, which the directory may know
    # otherwise.
    file.seek(member.header_offset + 26)
    start = member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
    if member.compress_size != member.file_size or start + member.file_size > end:
        raise ValueError(f"{path}: {member.filename} is not as long as the archive says")
    return start


_HEADERS = {
    (1, 0): numpy.lib.format.read_array_header_1_0,
    (2, 0): numpy.lib.format.read_array_header_2_0,
}


def _mapped(path, offset, size):
    try:
        array = _map_all(path) if size < 0 else _map_part(path, offset, size)
    except OSError:
        raise
    except Exception as error:  # whatever numpy's readers of a header stumble over
        raise ValueError(f"{path}: {error}") from error
    if array.ndim == 0:
        raise ValueError(f"{path}: an array without dimensions has no rows")
    return array


def _map_all(path):
    array = numpy.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, numpy.ndarray):
        raise ValueError("it is not a .npy file")
    return array


def _map_part(path, offset, size):
    with open(path, "rb") as file:
        file.seek(offset)
        version = numpy.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"a .npy of version {version} cannot be mapped")
        shape, fortran, dtype = _HEADERS[version](file)
        start = file.tell()
    if dtype.hasobject:
        raise ValueError("Python objects cannot be mapped")
    if start - offset + math.prod(shape) * dtype.itemsize != size:
        raise ValueError("an array is not as long as the archive says")
    return numpy.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def tensor_of_row(row):
    """A tensor with a copy of a row, in the byte order of the machine, which torch wants; a dict of
    them for a structured one."""
    if row.dtype.names:
        return {name: tensor_of_row(row[name]) for name in row.dtype.names}
    row = numpy.asarray(row)
    return torch.from_numpy(numpy.array(row, dtype=row.dtype.newbyteorder("="), order="C"))


def _of_raw(rows, dtype):
    """The fields of structured items, given as their bytes in the last dimension."""
    fields = {}
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        part = rows[..., offset : offset + kind.itemsize].contiguous()
        part = part.view(getattr(torch, kind.base.name))
        fields[name] = part.reshape(*rows.shape[:-1], *kind.shape)
    return fields


class Tokens(Dataset):
    """Slices of one length of a flat file of tokens, as int64 tensors.

    Tokens("train.bin", seq_length=2048)    uint16 without a header, as most write it
    stride    from the start of a slice to that of the next; None: the length, no overlap. For
              targets shifted by one take seq_length=2049 and stride=2048
    dtype     'uint16', 'uint32', 'int32' or another type of integer
    offset    bytes before the first token
    index     Megatron's .idx beside the file, which knows the type; then dtype and offset rest
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
            raise ValueError(f"dtype is one of {', '.join(self.TYPES)}; got {dtype!r}")
        if self.seq_length < 1 or self.stride < 1 or self.offset < 0:
            raise ValueError("seq_length and stride are at least 1, offset at least 0")
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
                raise ValueError(f"{self.path}: {size} bytes are no whole number of {self.dtype}")
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
        start = one_index(index, len(self)) * self.stride
        return torch.from_numpy(self._tokens[start : start + self.seq_length].astype(numpy.int64))

    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def engine_spec(self):
        if not len(self):
            return "there is not one whole slice in the file"
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
    """(type, tokens) of Megatron's index: see src/load/source/megatron_index.h."""
    types = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 34 or raw[:9] != b"MMIDIDX\0\0":
        raise ValueError(f"{path} is not an index of Megatron's")
    version, code, sequences = struct.unpack_from("<QBQ", raw, 9)
    if version != 1 or code not in types or sequences > (len(raw) - 34) // 12:
        raise ValueError(f"{path} is damaged, or of another version")
    lengths = numpy.frombuffer(raw, "<i4", sequences, 34).astype(numpy.int64)
    starts = numpy.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences)
    ends = numpy.cumsum(lengths)
    if (lengths < 0).any() or (
        starts != (ends - lengths) * numpy.dtype(types[code]).itemsize
    ).any():
        raise ValueError(f"{path}: the sequences do not follow each other")
    return types[code], int(ends[-1]) if sequences else 0
