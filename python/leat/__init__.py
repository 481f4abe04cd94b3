"""leat finds out what a training waits for: `leat run train.py`.

Nothing here is needed for that. These functions tell leat what it cannot see by itself; outside
`leat run` they do nothing and cost next to nothing.

    leat.step()                    a step ends here, for loops without a torch optimizer
    with leat.phase("tokenize"):   a span with a name of your own
    leat.wrap_loader(stream)       batches from something that is not a DataLoader
    leat.final_summary()           the result of a finished run, as a dict

And what a training that waits for its input may use instead:

    leat.DataLoader                torch's DataLoader, its batches made by C threads where it can be
    leat.Pad, leat.Concat          collate functions for samples that differ in length
    leat.BucketSampler             batches of samples of like length, or of a budget of tokens
    leat.data                      datasets it reads in C
"""

import functools
import importlib
import os
import sys

from leat import _record
from leat.hooks import process

__all__ = [
    "BucketSampler",
    "Concat",
    "DataLoader",
    "Pad",
    "data",
    "final_summary",
    "phase",
    "step",
    "wrap_loader",
]
__version__ = _record.VERSION

_on = None  # None: not asked yet


def __getattr__(name):
    """DataLoader, Pad, Concat and data import torch: not before somebody asks for them."""
    if name == "DataLoader":
        from leat.loader.dataloader import DataLoader

        globals()[name] = DataLoader
        return DataLoader
    if name in ("Pad", "Concat"):
        from leat.loader import collate

        return getattr(collate, name)
    if name == "BucketSampler":
        from leat.loader.bucket_sampler import BucketSampler

        return BucketSampler
    if name == "data":
        return importlib.import_module("leat.data")
    raise AttributeError(f"module 'leat' has no attribute {name!r}")


def _recording():
    global _on
    if _on is None:
        _on = process.open_recorder()
    return _on


def _compiling():
    """Inside a compiled function these calls vanish: Dynamo must not break its graph for them."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()


def step():
    """Marks the end of a step. With it in the loop, it alone decides what a step is."""
    if not _compiling() and _recording():
        if process.role != _record.ROLE_MAIN or not process.reported.signals & _record.SIGNAL_STEP:
            process.take_main_role()
            process.signals(_record.SIGNAL_STEP)
        t = _record.now_ns()
        _record.record(_record.STEP, 0, 0, 0, t, t)


class phase:
    """A named span, as a context manager or as a decorator. A name of one of the phases (input,
    h2d, forward, backward, optimizer, sync) charges that phase; any other is a named part of the
    step."""

    def __init__(self, name):
        self.name = str(name)

    def __enter__(self):
        if _compiling():
            return self
        if _recording():
            process.name_id(self.name)
            _record.phase_begin(_record.now_ns())
        else:
            _record.phase_begin(0)
        return self

    def __exit__(self, kind, error, trace):
        if _compiling():
            return False
        t0 = _record.phase_end()
        if t0:
            flags = 0 if kind is None else _record.FLAG_ERROR
            _record.record(_record.NAMED, flags, process.name_id(self.name), 0, t0)
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def named(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return named


def wrap_loader(iterable, name=None):
    """The same iterable, whose batches are seen as those of a DataLoader are. It keeps its length,
    can be iterated again as often as the original, and passes every other attribute through."""
    from leat.hooks.wrap_loader import wrap

    return wrap(iterable, name)


def final_summary(path=None):
    """The parsed final_summary.json of a run.

    `path` may be that file or a run's folder. Without it, the newest one below logs/ is read. While
    a run goes on there is none yet (leat writes it when the training has ended), so inside
    `leat run` a call without path returns None; so does one that finds no run at all.
    """
    import glob
    import json

    if path is None:
        if os.environ.get("LEAT_SOCKET"):
            return None
        found = glob.glob(os.path.join("logs", "*", "final_summary.json"))
        if not found:
            return None
        path = max(found, key=os.path.getmtime)
    elif os.path.isdir(path):
        path = os.path.join(path, "final_summary.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)
