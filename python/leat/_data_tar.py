"""leat.data.Tar: shards in the layout of WebDataset.

The engine reads the archives (src/load/source/tar.c); here are the names of the shards, what the
values of each extension are, and samples as WebDataset gives them: dicts with "__key__" and a value
for each extension.
"""

import operator
import os
import re

import numpy
from torch.utils.data import Dataset
from torch.utils.dlpack import from_dlpack

from leat import _core
from leat._lowered import NAMES, Lowered

# What a value is by the last part of its extension, as src/load/source/tar.c has it too; any other
# is bytes. Texts are bytes to the engine.
KINDS = {
    "npy": "npy",
    "pt": "torch",
    "pth": "torch",
    **dict.fromkeys(("cls", "cls2", "id", "index", "inx"), "int"),
    **dict.fromkeys(("txt", "text", "transcript"), "str"),
}
CODECS = {
    "bytes": _core.CODEC_BYTES,
    "str": _core.CODEC_BYTES,
    "int": _core.CODEC_DECIMAL,
    "npy": _core.CODEC_NPY,
    "torch": _core.CODEC_TORCH,
}
MISSING = ("error", "skip")


class Tar(Dataset):
    """Tar shards in the layout of WebDataset, with a length and indices.

    Tar("shards/train-{000..012}.tar")   braces as a shell expands them; or a list of shards
    fields       {"jpg": "bytes", "cls": "int"}; None: those of the first sample, by extension.
                 "bytes", "str", "int", "npy", "torch", or ("float32", (3, 64)) for numbers without
                 a header. Where the first dimension differs: ("npy", None), ("float32", (None, 64))
    missing      what becomes of a sample that lacks a field: "error" when it is read, or "skip"
    cache        folder for copies of compressed and remote shards; None: temporary files
    cache_bytes  most that these copies may take
    endpoint     of s3://bucket/key, where it is not Amazon's; None: LEAT_S3_ENDPOINT
    timeout      seconds to wait for a server that sends nothing
    threads      that open shards; None: one a core, and 8 at least for addresses
    """

    def __init__(
        self,
        shards,
        fields=None,
        *,
        missing="error",
        cache=None,
        cache_bytes=None,
        endpoint=None,
        timeout=60,
        threads=None,
    ):
        if missing not in MISSING:
            raise ValueError(f"missing is 'error' or 'skip'; got {missing!r}")
        self.shards = tuple(_expanded(shards))
        if not self.shards:
            raise ValueError("there are no shards")
        self.fields = None if fields is None else dict(fields)
        if self.fields is not None and not self.fields:
            raise ValueError("fields names no field")
        self._given = (
            None if cache is None else os.fspath(cache),
            0 if cache_bytes is None else operator.index(cache_bytes),
            endpoint,
            operator.index(timeout),
            missing == "skip",
            0 if threads is None else operator.index(threads),
        )
        self._open()

    def _open(self):
        asked = () if self.fields is None else tuple(_codec(*item) for item in self.fields.items())
        shards = tuple(os.fsencode(shard) for shard in self.shards)
        self._source = source = _core.source_tar(shards, asked, *self._given)
        self._names = [field[0] for field in source.fields]
        if self.fields is None:
            self._kinds = [_kind_of(name) for name in self._names]
        else:
            self._kinds = [kind if isinstance(kind, str) else "" for kind in self.fields.values()]
            self._kinds.insert(0, "str")
        self._kinds[0] = "key"
        as_bytes = [f for f, kind in enumerate(self._kinds) if kind in ("bytes", "str", "key")]
        differ = [f for f, codec in enumerate(asked, 1) if codec[4]]
        self._as_bytes = as_bytes
        self._variable = sorted({*as_bytes, *differ})

    def __len__(self):
        return self._source.count

    def __getitem__(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range: there are {len(self)} samples")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices):
        if not len(indices):
            return []
        columns = []
        for f, leaf in enumerate(self._source.read(indices)):
            kind = self._kinds[f]
            if f in self._as_bytes:
                columns.append(_texts(leaf, kind))
            elif f in self._variable:
                columns.append([from_dlpack(capsule) for capsule in leaf])
            elif kind == "int":
                columns.append(from_dlpack(leaf).tolist())
            else:
                columns.append(from_dlpack(leaf).unbind())
        return [dict(zip(self._names, sample)) for sample in zip(*columns)]

    def build_batch(self, leaves):
        return {
            name: _texts(leaf, kind) if f in self._as_bytes else leaf
            for f, (name, kind, leaf) in enumerate(zip(self._names, self._kinds, leaves))
        }

    def lowered(self):
        for name, dtype, *_ in self._source.fields:
            if dtype not in NAMES:
                return f"the values of .{name} have the type {dtype}"
        source = self._source
        return Lowered(
            ("tar", id(source)),
            lambda: source,
            self.build_batch,
            f"{len(self.shards)} tar shards, mapped: {self._described()}, {len(self)} samples",
            self._variable,
            self._as_bytes,
        )

    def _described(self):
        texts = []
        for f, (name, dtype, _, _, shape) in enumerate(self._source.fields[1:], 1):
            kind = self._kinds[f]
            if f not in self._as_bytes:
                some = ["*"] if f in self._variable else []
                kind = f"{dtype}[{'x'.join([*some, *map(str, shape)])}]"
            texts.append(f"{name} {kind}")
        return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")

    def __getstate__(self):  # shards are opened anew, not sent
        return {key: self.__dict__[key] for key in ("shards", "fields", "_given")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()


def _texts(values, kind):
    """Names may hold bytes that are no UTF-8, as file names do; texts may not."""
    if kind == "str":
        return [value.decode() for value in values]
    if kind == "key":
        return [value.decode(errors="surrogateescape") for value in values]
    return values


def _kind_of(name):
    return KINDS.get(name.rpartition(".")[2], "bytes")


def _codec(extension, kind):
    """(extension, codec, dtype, shape, differs in length), as _core.source_tar wants it."""
    name = extension.lstrip(".")
    if isinstance(kind, str):
        if kind not in CODECS:
            raise ValueError(f"{extension}: {', '.join(CODECS)} are known, not {kind!r}")
        return name, CODECS[kind], 0, (), kind in ("bytes", "str")
    if not isinstance(kind, (tuple, list)) or len(kind) != 2:
        raise TypeError(f"{extension}: a name such as 'npy', or a type and a shape; got {kind!r}")
    kind, shape = kind
    if kind in ("npy", "torch") and shape is None:
        return name, CODECS[kind], 0, (), True
    dtype = str(kind).replace("torch.", "") if "torch" in str(kind) else numpy.dtype(kind).name
    if dtype not in NAMES:
        raise ValueError(f"{extension}: {', '.join(NAMES)} are known types, not {kind!r}")
    shape = tuple(shape)
    differs = bool(shape) and shape[0] is None
    shape = tuple(operator.index(size) for size in shape[differs:])
    return name, _core.CODEC_ARRAY, getattr(_core, "DTYPE_" + dtype), shape, differs


# ---- Braces, as bash expands them.

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")


def _expanded(shards):
    if isinstance(shards, (str, os.PathLike)):
        shards = [shards]
    for shard in shards:
        yield from _braces(os.fspath(shard))


def _braces(text):
    """All that a text with {a,b} or {000..012} in it stands for, in the shell's order."""
    start = text.find("{")
    while start >= 0:
        end, commas = _closing(text, start)
        if end is not None:
            choices = _choices(text[start + 1 : end], commas, start + 1)
            if choices is not None:
                return [
                    text[:start] + choice + rest
                    for choice in choices
                    for rest in _braces(text[end + 1 :])
                ]
        start = text.find("{", start + 1)
    return [text]


def _closing(text, start):
    """Where the brace ends, and its commas, which are not those of braces inside it."""
    depth, commas = 0, []
    for at in range(start, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return at, commas
        elif text[at] == "," and depth == 1:
            commas.append(at)
    return None, commas


def _choices(inside, commas, offset):
    if commas:
        cuts = [-1, *(at - offset for at in commas), len(inside)]
        parts = [inside[a + 1 : b] for a, b in zip(cuts, cuts[1:])]
        return [choice for part in parts for choice in _braces(part)]
    numbers, letters = _NUMBERS.fullmatch(inside), _LETTERS.fullmatch(inside)
    if numbers:
        first, last, step = numbers.groups()
        padded = any(re.match(r"-?0\d", number) for number in (first, last))
        width = max(len(first), len(last)) if padded else 0
        return [f"{n:0{width}d}" for n in _range(int(first), int(last), step)]
    if letters:
        first, last, step = letters.groups()
        return [chr(n) for n in _range(ord(first), ord(last), step)]
    return None


def _range(first, last, step):
    step = abs(int(step or 1)) or 1
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
