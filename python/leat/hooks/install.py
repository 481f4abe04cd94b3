"""Installs and removes the hooks.

install() is called when torch has been imported, dynamo_imported() when parts of its compiler have,
saver_imported() when another module that writes checkpoints has. None of them raises. remove()
takes every hook out: on request, or when leat has stopped recording.
"""

import atexit
import sys
import traceback

from .. import _record
from . import (
    cuda,
    distributed,
    dynamo,
    loaders,
    patch,
    process,
    text,
    training,
    user_code,
    wrap_loader,  # noqa: F401  (must be in sys.modules when leat is hidden from Dynamo)
)

_NEVER = (1 << 64) - 1
_PERIOD_NS = 20_000_000  # of the tick


class _Tick:
    """Called by fetches and optimizer steps: removes the hooks when leat has stopped recording,
    finds what a training thread waits for, and records the memory of the GPU when that is due."""

    def __init__(self):
        self.memory = None
        self.active = True

    def __call__(self):
        try:
            if not _record.recording():
                if self.active:
                    remove()
                return
            _record.due(_record.now_ns() + _PERIOD_NS)
            distributed.watch_waits()
            if self.memory is not None:
                self.memory()
        except Exception:
            _record.due(_NEVER)
            patch.missing("tick")


_tick = None


def _measure_cost():
    """The minimum time of one hook with its record, in nanoseconds: an empty backward with a record
    that is not published, minus the bare call."""

    def bare(*args, **kwargs):
        return None

    def best(function):
        least = _NEVER
        for _ in range(10):
            t0 = _record.now_ns()
            for _ in range(20):
                function(None)
            least = min(least, _record.now_ns() - t0)
        return least // 20

    cost = best(_record.Backward(bare, _record.NONE)) - best(bare)
    return max(cost, 1)


def install(torch):
    """Installs the hooks if leat records. Never raises."""
    global _tick
    try:
        if _tick is not None or not process.open_recorder():
            return
        _tick = _Tick()
        _record.on_tick(_tick)
        _record.due(0)
        process.fact("python", sys.version.split()[0])
        process.fact("torch", getattr(torch, "__version__", "?"))
    except Exception:
        return
    for part, arguments in (
        (loaders.install, (torch,)),
        (training.install, (torch,)),
        (distributed.install, (torch,)),
        (cuda.install, (torch, _tick)),
    ):
        try:
            part(*arguments)
        except Exception:
            patch.missing(part.__module__.rpartition(".")[2])
    try:
        for name in dynamo.IMPORTED:
            if name in sys.modules:  # some versions of torch import it
                dynamo_imported(sys.modules[name])
        for name in training.SAVERS:
            if name in sys.modules:
                saver_imported(sys.modules[name])
        process.cost(_measure_cost())
        process.report()
        atexit.register(_close)
    except Exception:
        pass


def dynamo_imported(module):
    """Called when a module of dynamo.IMPORTED has been imported."""
    try:
        if _tick is not None:
            dynamo.IMPORTED[module.__name__](module)
    except Exception:
        patch.missing("torch.compile")


def saver_imported(module):
    """Called when a module of training.SAVERS has been imported."""
    try:
        if _tick is not None:
            training.install_savers(module, sys.modules["torch"])
    except Exception:
        patch.missing(module.__name__)


def remove():
    """Removes every hook and restores torch."""
    global _tick
    if _tick is not None:
        _tick.active = False
        _record.due(_NEVER)
        _tick = None
    patch.remove()


def describe_exception(error):
    """`Type: text (file:line)`, with the innermost line of the user's code."""
    where = ""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not user_code.is_library(frame.filename):
            where = user_code.call_site(frame.filename, frame.lineno, 100)
            break
    else:
        if frames:
            where = user_code.call_site(frames[-1].filename, frames[-1].lineno, 100)
    message = f"{type(error).__name__}: {error}".strip().rstrip(":")
    size = 256 - len(where) - 3
    return text.cut(message, size) + (f" ({where})" if where else "")


def _close():
    """At exit: reports the exception that ended the script, if any, and closes the recorder."""
    try:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and process.reported.by_this_process:
            process.fact("exception", describe_exception(error))
        _record.close()
    except Exception:
        pass
