"""Watches a training without a change to it.

install() is called when torch has just been imported, dynamo_imported() when parts of its compiler
have, saver_imported() when another module that writes checkpoints has. None of them raises, whatever
torch looks like. Every hook is taken out by remove(): on request, or when leat says that it has seen
enough.
"""

import atexit
import sys
import traceback

from leat import _record
from leat.hooks import (
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


class _Tick:
    """What a fetch or an optimizer step does when leat no longer listens, or when it is time for
    another look at the memory of the GPU."""

    def __init__(self):
        self.memory = None
        self.active = True

    def __call__(self):
        try:
            if not _record.recording():
                if self.active:
                    remove()
            elif self.memory is not None:
                self.memory()
        except Exception:
            _record.due(_NEVER)
            patch.missing("cuda memory")


_tick = None


def _measure_cost():
    """The least time that one hook with its record takes here, in nanoseconds: that of a backward
    with nothing in it and a record that is not published, against the bare call."""

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
    """Puts the hooks in if there is somebody to record for. Never raises."""
    global _tick
    try:
        if _tick is not None or not process.open_recorder():
            return
        _tick = _Tick()
        _record.on_tick(_tick)
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
            if name in sys.modules:  # some versions of torch bring it along
                dynamo_imported(sys.modules[name])
        for name in training.SAVERS:
            if name in sys.modules:
                saver_imported(sys.modules[name])
        process.cost(_measure_cost())
        process.report()
        atexit.register(_goodbye)
    except Exception:
        pass


def dynamo_imported(module):
    """A module of Dynamo that is watched for has come."""
    try:
        if _tick is not None:
            dynamo.IMPORTED[module.__name__](module)
    except Exception:
        patch.missing("torch.compile")


def saver_imported(module):
    """A module that writes checkpoints has come."""
    try:
        if _tick is not None:
            training.install_savers(module, sys.modules["torch"])
    except Exception:
        patch.missing(module.__name__)


def remove():
    """Takes every hook out and leaves torch as it was found."""
    global _tick
    if _tick is not None:
        _tick.active = False
        _record.due(_NEVER)
        _tick = None
    patch.remove()


def describe_exception(error):
    """`Type: text (file:line)`, the line being the innermost of the user's own."""
    where = ""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not user_code.is_library(frame.filename):
            where = user_code.call_site(frame.filename, frame.lineno, 100)
            break
    else:
        if frames:
            where = user_code.call_site(frames[-1].filename, frames[-1].lineno, 100)
    words = f"{type(error).__name__}: {error}".strip().rstrip(":")
    room = 256 - len(where) - 3
    return text.cut(words, room) + (f" ({where})" if where else "")


def _goodbye():
    """At exit: how it ended, if by an exception, and that nothing more will come."""
    try:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and process.reported.by_this_process:
            process.fact("exception", describe_exception(error))
        _record.close()
    except Exception:
        pass
