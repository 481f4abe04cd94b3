"""leat.data.Tar: tar shards in the layout of WebDataset.

The engine reads the archives (src/load/source/tar/). This module expands the shards' names, chooses
the type of each extension's values, and makes samples as WebDataset does: dicts with "__key__" and
a value for each extension.
"""

import operator
import os
import re

from leat import _engine
from leat.data.values import Value, Values

# The type of a value by the last part of its extension, as in src/load/source/tar/tar.c; others are
# bytes.
KINDS = {
    "npy": "npy",
    "pt": "torch",
    "pth": "torch",
    **dict.fromkeys(("cls", "cls2", "id", "index", "inx"), "int"),
    **dict.fromkeys(("txt", "text", "transcript"), "str"),
}
MISSING = ("error", "skip")


class Tar(Values):
    """Tar shards in the layout of WebDataset, with a length and indices.

    Tar("shards/train-{000..012}.tar")   braces are expanded as in a shell; or a list of shards
    fields       {"jpg": "bytes", "cls": "int"}; None: those of the first sample, by extension.
                 "bytes", "str", "int", "npy", "torch", or ("float32", (3, 64)) for numbers without
                 a header. If the first dimension differs: ("npy", None), ("float32", (None, 64))
    missing      for a sample that lacks a field: "error" when it is read, or "skip"
    cache_dir    folder for copies of compressed and remote shards; None: temporary files
    cache_bytes  size limit of these copies
    endpoint_url server of s3://bucket/key, if not Amazon's; None: LEAT_S3_ENDPOINT
    timeout      seconds to wait for a server that sends nothing
    num_threads  threads that open shards; None: one per core, and at least 8 for remote shards
    """

    def __init__(
        self,
        shards,
        fields=None,
        *,
        missing="error",
        cache_dir=None,
        cache_bytes=None,
        endpoint_url=None,
        timeout=60,
        num_threads=None,
    ):
        if missing not in MISSING:
            raise ValueError(f"missing must be 'error' or 'skip'; got {missing!r}")
        self.shards = tuple(_expanded(shards))
        if not self.shards:
            raise ValueError("no shard is given")
        self.fields = None if fields is None else dict(fields)
        if self.fields is not None and not self.fields:
            raise ValueError("fields names no field")
        self._given = (
            None if cache_dir is None else os.fspath(cache_dir),
            0 if cache_bytes is None else operator.index(cache_bytes),
            endpoint_url,
            operator.index(timeout),
            missing == "skip",
            0 if num_threads is None else operator.index(num_threads),
        )
        self._open()

    def _make_source(self):
        fields = {} if self.fields is None else self.fields
        values = [_value(*item) for item in fields.items()]
        codecs = tuple((name.lstrip("."), value.codec) for name, value in zip(fields, values))
        shards = tuple(os.fsencode(shard) for shard in self.shards)
        source = _engine.source_tar(shards, codecs, *self._given)
        self.kind = tuple(field[0] for field in source.fields)
        self.values = [_Key(), *(values or [Value(_kind_of(name)) for name in self.kind[1:]])]
        return source


class _Key(Value):
    """File names may hold bytes that are not UTF-8."""

    def __init__(self):
        super().__init__("str")

    def decoded(self, value):
        return value.decode(errors="surrogateescape")


def _kind_of(name):
    return KINDS.get(name.rpartition(".")[2], "bytes")


def _value(extension, spec):
    try:
        return Value(tuple(spec) if isinstance(spec, list) else spec)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{extension}: {error}") from None


# ---- Braces, as bash expands them.

_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")


def _expanded(shards):
    if isinstance(shards, (str, os.PathLike)):
        shards = [shards]
    for shard in shards:
        yield from _braces(os.fspath(shard))


def _braces(text):
    """The expansions of {a,b} and {000..012} in a text, in the shell's order."""
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
    """(end of the brace, positions of its own commas)."""
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
