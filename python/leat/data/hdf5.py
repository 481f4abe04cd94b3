"""leat.data.Hdf5: datasets of an HDF5 file.

h5py gives the datasets and the addresses of their chunks, once, when the file is opened. The engine
then reads the file itself (src/load/source/hdf5/hdf5.c), without the lock of libhdf5.
"""

import operator
import os
import sys

import numpy
from torch.utils import dlpack

from leat import _engine
from leat.data.values import Rows, Values
from leat.loader.engine_spec import NAMES

# struct leat_hdf5_chunk
_CHUNK = numpy.dtype([("number", "u8"), ("offset", "u8"), ("bytes", "u4"), ("mask", "u4")])
_NEVER_WRITTEN = (1 << 64) - 1
_FILTERS = {
    1: _engine.HDF5_DEFLATE,
    2: _engine.HDF5_SHUFFLE,
    3: _engine.HDF5_FLETCHER32,
    32000: _engine.HDF5_LZF,
}
# A float's (bytes, fields, exponent bias) -> its type. Fields are those of TypeFloatID.get_fields().
_FLOATS = {
    (2, (15, 10, 5, 0, 10), 15): "float16",
    (2, (15, 7, 8, 0, 7), 127): "bfloat16",
    (4, (31, 23, 8, 0, 23), 127): "float32",
    (8, (63, 52, 11, 0, 52), 1023): "float64",
}


class Hdf5(Values):
    """Datasets of an HDF5 file, a sample being one row of each. Needs h5py.

    Hdf5("train.h5", "images")               a sample is a tensor
    Hdf5("train.h5", "images", "meta/ids")   a sample is a tuple, a batch a list of two tensors
    Hdf5("train.h5", image="images", id="meta/ids"), Hdf5("train.h5", {"image": "images"})   dicts
    cache_bytes    limit on unpacked chunks; None: an eighth of the memory, 1 GiB at most

    Chunks packed with gzip, lzf, shuffle or fletcher32 are unpacked whole and kept a while, so read
    them with order="window" (or in their order): each is then unpacked once per epoch.
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
        self._open()

    def _make_source(self):
        h5py = _h5py()
        path = os.fsdecode(self.path)
        fields = self.kind if isinstance(self.kind, tuple) else self.datasets
        with _file(h5py, path) as file:
            found = [_Dataset(h5py, path, file, name) for name in self.datasets]
            asked = tuple(one.asked(str(field)) for one, field in zip(found, fields))
            source = _engine.source_hdf5(os.fsencode(path), asked, self.cache_bytes)
            _compare_last_rows(source, found)
        return source

    def engine_spec(self):
        return super().engine_spec() if len(self) else f"{self.path} has no samples"


def _compare_last_rows(source, found):
    """The last row that the engine reads must be h5py's. It is not where libhdf5 gives other
    addresses (behind a user block before 1.14.4), or chunks at the edges are not packed."""
    if not source.count or any(one.dtype not in NAMES for one in found):
        return
    try:
        rows = source.read([source.count - 1])
        expected = [numpy.asarray(one.dataset[source.count - 1]) for one in found]
    except (OSError, ValueError):
        return  # damaged: a batch with the sample reports it
    for one, row, theirs in zip(found, rows, expected):
        mine = dlpack.from_dlpack(row)[0]
        if one.dtype == "bfloat16":
            mine = mine.float()
        if mine.numpy().tobytes() != theirs.astype(theirs.dtype.newbyteorder("=")).tobytes():
            raise one.refusal(
                f"is not where libhdf5 {one.h5py.version.hdf5_version} says, or its edges are "
                "packed in another way: update h5py, or rewrite the file with h5repack"
            )


def _h5py():
    try:
        import h5py
    except ImportError as error:
        raise ImportError("leat.data.Hdf5 needs h5py: pip install h5py") from error
    return h5py


def _file(h5py, path):
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist")
    if not h5py.is_hdf5(path):
        raise ValueError(f"{path} is not an HDF5 file")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"{path} cannot be opened ({error})") from error


class _Dataset:
    """One dataset of an open file, as h5py knows it."""

    def __init__(self, h5py, path, file, name):
        self.h5py, self.path, self.name = h5py, path, name
        try:
            self.dataset = file[name]
        except (KeyError, OSError) as error:
            raise self.refusal(f"cannot be opened ({error.args[0]})") from None
        if not isinstance(self.dataset, h5py.Dataset):
            raise self.refusal(f"cannot be opened (it is a {type(self.dataset).__name__})")
        if self.dataset.file.filename != file.filename:
            raise self.refusal("is a link to another file: name that one")
        self.user_block_bytes = file.userblock_size
        self.id = self.dataset.id
        self.list = self.id.get_create_plist()
        self.type = self.id.get_type()
        self.item_shape = ()
        if isinstance(self.type, h5py.h5t.TypeArrayID):  # its dimensions follow the dataset's
            self.item_shape = tuple(self.type.get_array_dims())
            self.type = self.type.get_super()
        self.dtype, self.swapped = self.kind()
        self.shape = tuple(self.id.shape) + self.item_shape
        if not self.id.shape:
            raise self.refusal("holds a single item; a first dimension must count the samples")
        if len(self.shape) > 16:
            raise self.refusal("has more dimensions than 16")

    def refusal(self, what):
        return ValueError(f'{self.path}: dataset "{self.name}" {what}.')

    def asked(self, field):
        """What _engine.source_hdf5() takes of a dataset."""
        layout, offset, data, chunk, filters = self.layout()
        return (
            self.name.encode(),
            field.encode(),
            getattr(_engine, "DTYPE_" + self.dtype),
            self.swapped,
            self.shape,
            layout,
            offset,
            data,
            chunk,
            filters,
            self.fill(),
        )

    # ---- types

    def kind(self):
        """(name of the type, whether its byte order is not this machine's)"""
        h5t, kind = self.h5py.h5t, self.type
        if isinstance(kind, h5t.TypeEnumID):  # h5py's bool, or else its integers
            if kind.dtype == bool:
                return "bool", False
            kind = kind.get_super()
        if isinstance(kind, h5t.TypeFloatID):
            return self.float_name(kind), _is_swapped(h5t, kind)
        if isinstance(kind, h5t.TypeIntegerID):
            size = kind.get_size()
            if size not in (1, 2, 4, 8) or kind.get_precision() != 8 * size:
                raise self.refusal("has integers of a size that torch does not have")
            sign = "int" if kind.get_sign() == h5t.SGN_2 else "uint"
            return f"{sign}{8 * size}", _is_swapped(h5t, kind)
        if isinstance(kind, h5t.TypeCompoundID) and kind.dtype.kind == "c":
            part = kind.get_member_type(0)
            if self.float_name(part) in ("float32", "float64"):
                return f"complex{16 * part.get_size()}", _is_swapped(h5t, part)
        if isinstance(kind, h5t.TypeCompoundID):
            raise self.refusal("has compounds for items: store each member as a dataset of its own")
        what = {"TypeStringID": "strings", "TypeVlenID": "lists", "TypeReferenceID": "references"}
        name = what.get(type(kind).__name__, f"items of {type(kind).__name__}")
        raise self.refusal(f"has {name} for items, of which torch makes no tensor")

    def float_name(self, kind):
        layout = (kind.get_size(), tuple(kind.get_fields()), kind.get_ebias())
        if layout not in _FLOATS or kind.get_norm() != self.h5py.h5t.NORM_IMPLIED:
            raise self.refusal("has floats of a kind that torch does not have")
        return _FLOATS[layout]

    def fill(self):
        """The bytes of an item that was never written, as stored."""
        value = numpy.asarray(self.dataset.fillvalue, self.dataset.dtype.base).reshape(-1)
        if (value[:1] != value).any():
            raise self.refusal("has arrays for items, which are not filled with one number")
        if not value.size or not self.list.fill_value_defined():
            return bytes(16)
        if self.dtype != "bfloat16":  # numpy keeps the byte order of the file
            return value[:1].tobytes()
        half = value[:1].astype("f4").view("u4") >> 16
        return half.astype(">u2" if self.swapped else "=u2").tobytes()

    # ---- layouts

    def layout(self):
        """(layout, offset, data or chunks, shape of a chunk, filters)"""
        h5d, kind = self.h5py.h5d, self.list.get_layout()
        if kind == h5d.COMPACT:
            return _engine.HDF5_COMPACT, 0, self.stored(), (), ()
        if kind == h5d.CHUNKED:
            chunk = tuple(self.list.get_chunk())
            table = self.chunk_table(chunk).tobytes()
            return _engine.HDF5_CHUNKED, 0, table, chunk + self.item_shape, self.filters()
        if kind != h5d.CONTIGUOUS:
            raise self.refusal("is virtual: name the files that hold its data instead")
        if self.list.get_external_count():
            raise self.refusal("has its data in other files; h5repack brings them into one")
        offset = self.id.get_offset()
        return _engine.HDF5_CONTIGUOUS, _NEVER_WRITTEN if offset is None else offset, b"", (), ()

    def stored(self):
        """All items of a compact dataset, in the byte order of the file."""
        if self.dtype != "bfloat16":
            return self.dataset[()].tobytes()
        half = self.dataset[()].astype("f4").view("u4") >> 16
        return half.astype(">u2" if self.swapped else "=u2").tobytes()

    def filters(self):
        found = []
        for number in range(self.list.get_nfilters()):
            code, _, values, name = self.list.get_filter(number)
            if code not in _FILTERS:
                raise self.refusal(
                    f"is packed by the filter {name.decode(errors='replace') or 'without a name'} "
                    f"({code}); gzip, lzf, shuffle and fletcher32 can be read"
                )
            found.append((_FILTERS[code], values[0] if values else 0))
        return tuple(found)

    def chunk_table(self, chunk):
        infos = stored_chunks(self.id, chunk)
        table = numpy.zeros(len(infos), _CHUNK)
        if not infos:
            return table
        grid = [-(-size // part) for size, part in zip(self.id.shape, chunk)]
        first = numpy.array([info.chunk_offset for info in infos], "u8")
        for column, (count, part) in enumerate(zip(grid, chunk)):
            table["number"] = table["number"] * count + first[:, column] // part
        table["offset"] = [info.byte_offset for info in infos]
        table["bytes"] = [min(info.size, (1 << 32) - 1) for info in infos]
        table["mask"] = [info.filter_mask for info in infos]
        return table


def _is_swapped(h5t, kind):
    big = kind.get_order() == h5t.ORDER_BE
    return kind.get_size() > 1 and big != (sys.byteorder == "big")


def stored_chunks(dataset, chunk):
    """h5py's StoreInfo of every chunk that was written.

    get_chunk_info(n) takes time that grows with n, so a table of 100 000 chunks would take minutes.
    """
    count = dataset.get_num_chunks()
    if not count:
        return []
    infos = []
    if hasattr(dataset, "chunk_iter"):
        dataset.chunk_iter(infos.append)
    if not infos or not _offsets_count_items(dataset, infos):
        grid = numpy.ndindex(*(-(-size // part) for size, part in zip(dataset.shape, chunk)))
        every = (
            dataset.get_chunk_info_by_coord(tuple(n * part for n, part in zip(place, chunk)))
            for place in grid
        )
        return [info for info in every if info.byte_offset is not None]
    return infos


def _offsets_count_items(dataset, infos):
    """chunk_iter() of some versions of libhdf5 counts chunks instead."""
    some = next((info for info in infos if any(info.chunk_offset)), None)
    if some is None:
        return True
    return dataset.get_chunk_info_by_coord(some.chunk_offset).byte_offset == some.byte_offset
