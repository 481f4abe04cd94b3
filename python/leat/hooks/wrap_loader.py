"""leat.wrap_loader: FETCH records for any iterable."""

import sys

from .. import _record
from . import loaders, process, user_code


def wrap(iterable, name=None):
    where = user_code.caller()
    if name is None and getattr(iterable, "dataset", None) is None:
        name = type(iterable).__qualname__
    if hasattr(iterable, "__next__"):
        return _Iterator(iterable, where, name)
    kind = _SizedLoader if hasattr(iterable, "__len__") else _Loader
    return kind(iterable, where, name)


class _Loader:
    def __init__(self, iterable, where, name):
        self._leat_inner = iterable
        self._leat_where = where
        self._leat_name = name
        self._leat_id = None

    def __iter__(self):
        recording = process.open_recorder()
        if not recording:
            return iter(self._leat_inner)
        process.take_main_role()
        if self._leat_id is None:
            self._leat_id = loaders.register(self, self._leat_where, self._leat_name)
        # A DataLoader inside is part of this one: inside a FETCH it records nothing.
        outer = not _record.begin(_record.FETCH)
        t0 = _record.now_ns()
        try:
            inner = iter(self._leat_inner)
        except BaseException:
            if not outer:
                _record.end(_record.FETCH, _record.FLAG_ERROR, self._leat_id[0], 0)
            raise
        iterator = _Iterator(inner, self._leat_where, self._leat_name, self._leat_id)
        if not outer:
            _record.drop(_record.FETCH)
            _record.record(_record.ITER, 0, iterator._leat_number, iterator._leat_iteration, t0)
        return iterator

    def __getattr__(self, attribute):
        if attribute.startswith("_leat_"):
            raise AttributeError(attribute)
        return getattr(self._leat_inner, attribute)


class _SizedLoader(_Loader):
    def __len__(self):
        return len(self._leat_inner)


class _Iterator:
    def __init__(self, inner, where, name, known=None):
        self._leat_inner = inner
        self._leat_recording = process.open_recorder()
        if self._leat_recording:
            process.take_main_role()
            if known is None:
                known = loaders.register(self, where, name)
            self._leat_number, self._leat_size = known
            self._leat_iteration = process.next_iteration() << 32
            process.signals(_record.SIGNAL_FETCH)

    def __iter__(self):
        return self

    def __next__(self):
        if not self._leat_recording or not _record.begin(_record.FETCH):
            return next(self._leat_inner)
        torch = sys.modules.get("torch")
        grad = getattr(torch, "is_grad_enabled", None)
        flags = _record.FLAG_NOGRAD if grad is not None and not grad() else 0
        number, iteration = self._leat_number, self._leat_iteration
        try:
            batch = next(self._leat_inner)
        except BaseException as error:
            last = isinstance(error, StopIteration)
            flags |= _record.FLAG_END if last else _record.FLAG_ERROR
            _record.end(_record.FETCH, flags, number, iteration)
            raise
        size = loaders.samples(batch, self._leat_size)
        _record.end(_record.FETCH, flags, number, iteration | size)
        return batch

    def __getattr__(self, attribute):
        if attribute.startswith("_leat_"):
            raise AttributeError(attribute)
        return getattr(self._leat_inner, attribute)
