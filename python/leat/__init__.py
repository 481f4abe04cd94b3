"""leat finds out what a training waits for: `leat run train.py`.

Nothing here is needed for that. These functions give leat what it cannot measure by itself. Without
`leat run` they do nothing, at almost no cost.

    leat.step()                    the end of a step, for loops without a torch optimizer
    with leat.phase("tokenize"):   a span with your own name
    leat.wrap_loader(stream)       batches from an object that is not a DataLoader
    leat.final_summary()           the result of a finished run, as a dict

For a training that waits for its input:

    leat.DataLoader                torch's DataLoader, with batches made by C threads if possible
    leat.Pad, leat.Concat          collate functions for samples of different lengths
    leat.BucketSampler             batches of samples of similar length, or of a budget of tokens
    leat.data                      datasets that are read in C
"""

import functools
import importlib
import os
import sys

from . import _record
from .hooks import process

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

_on = None  # None: unknown


def __getattr__(name):
    """DataLoader, Pad, Concat, BucketSampler and data import torch, so they are imported on first
    use."""
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
    """True inside a compiled function, where these calls must not break the graph: Dynamo drops
    them."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return compiler is not None and compiler.is_compiling()


def step():
    """Marks the end of a step. In a run that calls it, nothing else ends a step."""
    if not _compiling() and _recording():
        if process.role != _record.ROLE_MAIN or not process.reported.signals & _record.SIGNAL_STEP:
            process.take_main_role()
            process.signals(_record.SIGNAL_STEP)
        t = _record.now_ns()
        _record.record(_record.STEP, 0, 0, 0, t, t)


class phase:
    """A named span, as a context manager or a decorator. The name of a phase (input, h2d, forward,
    backward, optimizer, sync) adds the time to that phase; any other name is a named part of the
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
    """The same iterable, with its batches recorded as those of a DataLoader. It has the same
    length, can be iterated again if the original can, and has all other attributes of the
    original."""
    from .hooks.wrap_loader import wrap

    return wrap(iterable, name)


def final_summary(path=None):
    """The parsed final_summary.json of a run.

    `path` may be that file or the folder of a run. Without it, the newest one below logs/ is read.
    leat writes it when the training has ended. So a call without path inside `leat run` returns
    None, as it does if there is no run.
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
