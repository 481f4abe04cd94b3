"""What the sampler of lines (line_sampler.c) has to ask Python: what a piece of code is, once for each.

The sampler reads stacks by itself. For every code object that it meets for the first time it calls
describe(), between two batches, and keeps the answer; from then on it needs Python no more.
"""

import dis
import functools
import linecache
import os
import re
import time

from leat import _record
from leat.hooks import patch, text, user_code

HZ = 100  # what it costs: docs/profiler.md
DENSE_S = 10  # a worker of a loader that is older looks less often from its start on

# The answers; user_lines.c has the same numbers.
USER, INLINE, LIBRARY, DECODE, FETCHER, LOADER, HOOK = range(7)

# Libraries whose frames decode images, whatever they do. In PIL that is the loading of a file: the
# rest of it transforms.
_DECODERS = re.compile(
    r"[/\\](PIL[/\\](ImageFile|\w+ImagePlugin)\.py$|torchvision[/\\]io[/\\]|imageio[/\\]"
    r"|simplejpeg[/\\]|turbojpeg(\.py$|[/\\])|pillow_heif[/\\]|rawpy[/\\])"
)
# Decoders without a frame of their own are known by the line that calls them.
_CALLS = re.compile(
    r"\b(imread|imreadmulti|imdecode|imdecodemulti|decode_jpeg|decode_png|decode_image)\s*\("
)
# Code of its own only to Python: to the user it is part of the line it stands on.
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
_FETCH = os.path.join("torch", "utils", "data", "_utils", "fetch.py")
_LOADER = os.path.join("torch", "utils", "data", "dataloader.py")


def start(begun):
    """In a process that is about to make batches, of a loader that was first iterated then
    (time.monotonic(); 0: not known). A second call does nothing."""
    seldom = begun > 0 and time.monotonic() - begun > DENSE_S
    if not sample(HZ, seldom):
        patch.missing("lines")


def sample(hz, seldom=False):
    """Whether stacks are sampled in this process from now on; `seldom`: at the lower rate from the
    start."""
    return can_read_stacks() and _record.sample_lines(hz, seldom, describe)


def _kind(code):
    path = code.co_filename
    if path.endswith(_FETCH):
        return FETCHER
    if path.endswith(_LOADER):
        return LOADER
    if path.startswith(user_code.LEAT) or path in ("<shim>", "<trampoline>"):
        return HOOK
    if code.co_name == "<interpreter trampoline>":
        return HOOK
    if _DECODERS.search(path):
        return DECODE
    if user_code.is_library(path):
        return LIBRARY
    return INLINE if code.co_name in _INLINE else USER


def _starts(code):
    """(position, line) where lines begin, in the order of the instructions."""
    if hasattr(code, "co_lines"):  # 3.10
        return [(start, line) for start, _, line in code.co_lines() if line is not None]
    return list(dis.findlinestarts(code))


def describe(code):
    """(kind, file, function, (position, line, calls a decoder, ...)) of a code object."""
    kind = _kind(code)
    numbers = []
    decodes = {}
    for start, line in _starts(code):
        if line not in decodes:
            source = linecache.getline(code.co_filename, line) if kind in (USER, INLINE) else ""
            decodes[line] = bool(_CALLS.search(source))
        numbers += [start, line, int(decodes[line])]
    name = getattr(code, "co_qualname", code.co_name)
    return (
        kind,
        text.keep_end(user_code.short_path(code.co_filename), 152).encode(),
        text.keep_end(name, 48).encode(),
        tuple(numbers),
    )


# How stacks lie in memory is found out once, for all processes that are forked from this one, by
# three calls of different functions, at different places in each: see python_stack.h.


def _inner(situation):
    return _record.probe_stack(situation)


def _middle(situation):
    first = situation
    again = first
    return _inner(again)


def _outer(situation):
    first = situation
    second = first
    third = second
    again = third
    return _middle(again)


@functools.cache
def can_read_stacks():
    """Whether the layout was found: by a call from Python, and by one through C."""
    _outer(0)
    return max(map(_outer, [1])) > 0
