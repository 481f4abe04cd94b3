"""Values that a codec makes samples of: what can be asked for, and what becomes of it.

    "bytes"                   the bytes as they are; samples are bytes
    "str"                     the same, as UTF-8; samples are str
    "int"                     a number in decimal digits, as labels are written; samples are int
    "npy"                     a .npy of plain numbers
    "torch"                   what torch.save() wrote: read by torch.load(weights_only=True)
    ("float32", (3, 224))     numbers without a header, as tobytes() writes them
    ("int64", (None,))        the same, the first dimension differing from sample to sample
    ("npy", None)             a .npy, the first dimension differing from sample to sample

All but the first three give tensors, "torch" whatever was saved. The engine decodes all but
"torch": datasets with such values run through torch, and plan() says so. A pickle is refused: it is
a program.
"""

import io
import operator

import numpy
import torch
from torch.utils import dlpack
from torch.utils.data import Dataset

from leat import _engine
from leat.loader.engine_spec import NAMES, EngineSpec

_KINDS = {
    "bytes": _engine.CODEC_BYTES,
    "str": _engine.CODEC_BYTES,
    "int": _engine.CODEC_DECIMAL,
    "npy": _engine.CODEC_NPY,
    "torch": _engine.CODEC_BYTES,  # torch.load() does the rest, in samples()
}
_TELL = '"bytes", "str", "int", "npy", "torch", or a type and a shape such as ("float32", (3, 224))'


def _shape_of(shape):
    """(the shape without a leading None, whether it had one)"""
    shape = tuple(shape) if isinstance(shape, (list, tuple, torch.Size)) else (shape,)
    variable = bool(shape) and shape[0] is None
    sizes = tuple(operator.index(size) for size in shape[1 if variable else 0 :])
    if any(size < 1 for size in sizes):
        raise ValueError(f"a shape has sizes of 1 and more, the first may be None; got {shape}")
    return sizes, variable


def _name_of(kind):
    """Of a type of torch, numpy or Python too: "float32"."""
    if isinstance(kind, str):
        return kind
    return str(kind)[6:] if isinstance(kind, torch.dtype) else numpy.dtype(kind).name


class Rows:
    """A field of tensors of one shape: how Python is given it.

    variable   whether samples differ in length
    as_bytes   whether they are bytes or str, which default_collate leaves in a list
    """

    variable = False
    as_bytes = False

    def samples(self, field):
        """The samples of one field that Source.read() gave."""
        return list(dlpack.from_dlpack(field).unbind(0))

    def batch(self, leaf):
        """What a batch has of the field."""
        return leaf


class Value(Rows):
    """A field that is asked for by what its bytes are.

    codec      what the engine is told: (kind, dtype, shape, variable)
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
            raise ValueError(f"a value is {_TELL}; got {spec!r}")
        self.name = name
        self.codec = (_KINDS.get(name, _engine.CODEC_ARRAY), dtype, sizes, variable)
        self.variable = variable
        self.as_bytes = name in ("bytes", "str")

    def samples(self, field):
        """Beyond tensors of one shape: int, bytes, str, and tensors of several lengths."""
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

    def batch(self, leaf):
        """Lists hold what samples are."""
        if self.name == "str" and isinstance(leaf, list):
            return [self.decoded(value) for value in leaf]
        return leaf

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
    """Of a capsule; single bytes come as bytes."""
    if isinstance(value, bytes):
        return (
            torch.frombuffer(bytearray(value), dtype=torch.uint8)
            if value
            else torch.empty(0, dtype=torch.uint8)
        )
    return dlpack.from_dlpack(value)


class Values(Dataset):
    """A dataset over a source of the engine, read by the same code with and without the loader.

    A subclass sets `values`, one Rows or Value for each field of the source, and `kind` (None: one
    value alone; tuple; or the names of a dict), has _open() make the source, and calls _reopen()
    last.
    """

    kind = None

    def _reopen(self):
        self._source = source = self._open()
        for value, (name, dtype, _, _, _) in zip(self.values, source.fields):
            if not value.as_bytes and dtype not in NAMES:
                raise ValueError(f"{name} has the type {dtype}, which this torch does not take")

    def build(self, leaves):
        """The structure of a sample from its leaves."""
        if self.kind is None:
            return leaves[0]
        return tuple(leaves) if self.kind is tuple else dict(zip(self.kind, leaves))

    def build_batch(self, leaves):
        """As default_collate does, which makes a list of a tuple, and in it tuples of bytes."""
        leaves = [value.batch(leaf) for value, leaf in zip(self.values, leaves)]
        if self.kind is tuple:
            return [tuple(leaf) if isinstance(leaf, list) else leaf for leaf in leaves]
        return self.build(leaves)

    def __len__(self):
        return self._source.count

    def __getitem__(self, index):
        length, index = len(self), operator.index(index)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of range: there are {length} samples")
        return self.__getitems__([index if index >= 0 else index + length])[0]

    def __getitems__(self, indices):
        if not len(indices):
            return []
        fields = self._source.read(indices)
        columns = [value.samples(field) for value, field in zip(self.values, fields)]
        return [self.build(leaves) for leaves in zip(*columns)]

    def engine_spec(self):
        if any(value.name == "torch" for value in self.values if isinstance(value, Value)):
            return "values written by torch.save() are read by torch.load(), one at a time"
        source = self._source
        variable = [i for i, value in enumerate(self.values) if value.variable]
        as_bytes = [i for i, value in enumerate(self.values) if value.as_bytes]
        # The source is what was opened: a loader reads the very one that the dataset does.
        key = (type(self).__name__, id(source))
        return EngineSpec(key, lambda: source, self.build_batch, source.text, variable, as_bytes)

    def __getstate__(self):  # a source is opened anew where it is unpickled
        return {key: value for key, value in self.__dict__.items() if key != "_source"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._reopen()
