"""Values of files and databases: what their bytes are, and what samples they give.

    "bytes"                   the bytes as they are; samples are bytes
    "str"                     the same, as UTF-8; samples are str
    "int"                     a number in decimal digits, as labels are written; samples are int
    "npy"                     a .npy of plain numbers
    "torch"                   what torch.save() wrote: read by torch.load(weights_only=True)
    ("float32", (3, 224))     numbers without a header, as tobytes() writes them
    ("int64", (None,))        the same; the first dimension differs from sample to sample
    ("npy", None)             a .npy; the first dimension differs from sample to sample

All but the first three give tensors, "torch" whatever was saved. The engine decodes all but
"torch": datasets with such values run through torch, and plan() says so. A pickle is refused: it is
a program.
"""

import io
import operator

import numpy
import torch
from torch.utils import dlpack

from leat import _engine
from leat.data.structured import SourceDataset
from leat.loader.engine_spec import NAMES, EngineSpec

_KINDS = {
    "bytes": _engine.CODEC_BYTES,
    "str": _engine.CODEC_BYTES,
    "int": _engine.CODEC_DECIMAL,
    "npy": _engine.CODEC_NPY,
    "torch": _engine.CODEC_BYTES,  # torch.load() does the rest, in samples()
}
_EXPECTED = (
    '"bytes", "str", "int", "npy", "torch", or a type and a shape such as ("float32", (3, 224))'
)


def _shape_of(shape):
    """(shape without a leading None, whether there was one)"""
    shape = tuple(shape) if isinstance(shape, (list, tuple, torch.Size)) else (shape,)
    variable = bool(shape) and shape[0] is None
    sizes = tuple(operator.index(size) for size in shape[1 if variable else 0 :])
    if any(size < 1 for size in sizes):
        raise ValueError(
            f"the sizes of a shape must be at least 1, the first may be None; got {shape}"
        )
    return sizes, variable


def _name_of(kind):
    """ "float32" of torch.float32, numpy.float32 or the same text."""
    if isinstance(kind, str):
        return kind
    return str(kind)[6:] if isinstance(kind, torch.dtype) else numpy.dtype(kind).name


class Rows:
    """A field whose samples are tensors of one shape.

    variable   whether samples differ in length
    as_bytes   whether samples are bytes or str, which default_collate leaves in a list
    """

    variable = False
    as_bytes = False

    def samples(self, field):
        """A list of samples, of what Source.read() returned for the field."""
        return list(dlpack.from_dlpack(field).unbind(0))

    def batch(self, field):
        """The field in a batch, of what the engine made of it."""
        return field


class Value(Rows):
    """A field described by what its bytes are.

    codec   (kind, dtype, shape, variable) for the engine
    """

    def __init__(self, spec):
        self.spec = spec
        kind, shape = spec if isinstance(spec, tuple) and len(spec) == 2 else (spec, ())
        name = _name_of(kind)
        if name in ("pickle", "pkl", "pyd"):
            raise ValueError(
                "a pickle is a program that only Python can run: use a dataset of your own, or "
                "store the values as .npy or as plain numbers"
            )
        dtype, sizes, variable = 0, (), False
        if name == "npy" and shape is None:
            variable = True
        elif name in _KINDS and shape == ():
            variable = name in ("bytes", "str", "torch")
        elif name in NAMES and isinstance(spec, tuple):
            dtype = getattr(_engine, "DTYPE_" + name)
            sizes, variable = _shape_of(shape)
        else:
            raise ValueError(f"a value must be {_EXPECTED}; got {spec!r}")
        self.name = name
        self.codec = (_KINDS.get(name, _engine.CODEC_ARRAY), dtype, sizes, variable)
        self.variable = variable
        self.as_bytes = name in ("bytes", "str")

    def samples(self, field):
        if self.name == "int":
            return dlpack.from_dlpack(field).tolist()
        if not self.variable:
            return super().samples(field)
        if self.name == "bytes":
            return field
        if self.name == "str":
            return [self.decoded(value) for value in field]
        if self.name == "torch":
            return [_load(value) for value in field]
        return [_tensor(value) for value in field]

    def batch(self, field):
        if self.name == "str" and isinstance(field, list):
            return [self.decoded(value) for value in field]
        return field

    def decoded(self, value):
        return value.decode()


def _load(value):
    try:
        return torch.load(io.BytesIO(value), weights_only=True)
    except Exception as error:
        raise ValueError(
            f"the value is not what torch.save() writes of tensors: {error}"
        ) from error


def _tensor(value):
    """The engine hands over rows of single bytes as bytes, others as a capsule."""
    if isinstance(value, bytes):
        return (
            torch.frombuffer(bytearray(value), dtype=torch.uint8)
            if value
            else torch.empty(0, dtype=torch.uint8)
        )
    return dlpack.from_dlpack(value)


class Values(SourceDataset):
    """A dataset of values, which the engine reads with and without the loader.

    A subclass sets `values` (a Rows or Value for each field of the source) and `kind` (None: a
    single value; tuple; or the names of a dict), has _make_source(), and calls _open() last.
    """

    kind = None

    def _open(self):
        self._source = self._make_source()
        for value, (name, dtype, _, _, _) in zip(self.values, self._source.fields):
            if not value.as_bytes and dtype not in NAMES:
                raise ValueError(f"{name} has the type {dtype}, which this torch does not have")

    def build(self, fields):
        """A sample of its fields."""
        if self.kind is None:
            return fields[0]
        return tuple(fields) if self.kind is tuple else dict(zip(self.kind, fields))

    def build_batch(self, fields):
        """As default_collate: of a tuple, a list, in which bytes and str are in tuples."""
        fields = [value.batch(field) for value, field in zip(self.values, fields)]
        if self.kind is tuple:
            return [tuple(field) if isinstance(field, list) else field for field in fields]
        return self.build(fields)

    def _samples(self, fields):
        columns = [value.samples(field) for value, field in zip(self.values, fields)]
        return [self.build(fields) for fields in zip(*columns)]

    def engine_spec(self):
        if any(value.name == "torch" for value in self.values if isinstance(value, Value)):
            return "values written by torch.save() are read by torch.load(), one at a time"
        source = self._source
        variable = [i for i, value in enumerate(self.values) if value.variable]
        as_bytes = [i for i, value in enumerate(self.values) if value.as_bytes]
        key = (type(self).__name__, id(source))
        return EngineSpec(key, lambda: source, self.build_batch, source.text, variable, as_bytes)
