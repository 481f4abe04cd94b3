"""What the line profiler (line_profiler.c) needs from Python: descriptions of code objects.

The profiler reads stacks by itself. It calls describe() once for each code object, between two
batches, and keeps the answer.
"""

import dis
import functools
import linecache
import os
import re
import time

from .. import _record
from ..hooks import patch, text, user_code

HZ = 100  # its cost: docs/profiler.md
DENSE_S = 10  # workers of an older loader are sampled at the lower rate

# The answers; user_lines.c has the same numbers.
USER, INLINE, LIBRARY, DECODE, FETCHER, LOADER, HOOK = range(7)

# Libraries whose frames count as decoding images. In PIL only the loading of a file does.
_DECODERS = re.compile(
    r"[/\\](PIL[/\\](ImageFile|\w+ImagePlugin)\.py$|torchvision[/\\]io[/\\]|imageio[/\\]"
    r"|simplejpeg[/\\]|turbojpeg(\.py$|[/\\])|pillow_heif[/\\]|rawpy[/\\])"
)
# Decoders without a Python frame are recognised by the line that calls them.
_CALLS = re.compile(
    r"\b(imread|imreadmulti|imdecode|imdecodemulti|decode_jpeg|decode_png|decode_image)\s*\("
)
# Code objects that belong to the line that contains them.
_INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
_FETCH = os.path.join("torch", "utils", "data", "_utils", "fetch.py")
_LOADER = os.path.join("torch", "utils", "data", "dataloader.py")


def start(begun):
    """Called in a process that is about to make batches of a loader that was first iterated at
    `begun` (time.monotonic(); 0: unknown). A second call does nothing."""
    slow_rate = begun > 0 and time.monotonic() - begun > DENSE_S
    if not sample(HZ, slow_rate):
        patch.missing("lines")


def sample(hz, slow_rate=False):
    """Whether stacks are sampled in this process from now on; `slow_rate`: at the lower rate from
    the start."""
    return can_read_stacks() and _record.profile_lines(hz, slow_rate, describe)


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


# The layout of stacks in memory is determined once, also for forked processes, by three calls of
# different functions, at different positions in each: see python_stack.h.


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
