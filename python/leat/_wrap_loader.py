"""leat.wrap_loader: FETCH records for any iterable."""

import sys

from leat import _core, _hooks_data, _state


def wrap(iterable, name=None):
    where = _state.caller()
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
        recording = _state.open_recorder()
        if not recording:
            return iter(self._leat_inner)
        _state.speak_main()
        if self._leat_id is None:
            self._leat_id = _hooks_data.register(self, self._leat_where, self._leat_name)
        # A DataLoader inside is part of this one: to it, a fetch is going on.
        outer = not _core.begin(_core.FETCH)
        t0 = _state.now()
        try:
            inner = iter(self._leat_inner)
        except BaseException:
            if not outer:
                _core.end(_core.FETCH, _core.FLAG_ERROR, self._leat_id[0], 0)
            raise
        iterator = _Iterator(inner, self._leat_where, self._leat_name, self._leat_id)
        if not outer:
            _core.drop(_core.FETCH)
            _state.record(_core.ITER, 0, iterator._leat_number, iterator._leat_iteration, t0)
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
        self._leat_recording = _state.open_recorder()
        if self._leat_recording:
            _state.speak_main()
            if known is None:
                known = _hooks_data.register(self, where, name)
            self._leat_number, self._leat_size = known
            self._leat_iteration = _state.next_iteration() << 32
            _state.signals(_core.SIGNAL_FETCH)

    def __iter__(self):
        return self

    def __next__(self):
        if not self._leat_recording or not _core.begin(_core.FETCH):
            return next(self._leat_inner)
        torch = sys.modules.get("torch")
        grad = getattr(torch, "is_grad_enabled", None)
        flags = _core.FLAG_NOGRAD if grad is not None and not grad() else 0
        number, iteration = self._leat_number, self._leat_iteration
        try:
            batch = next(self._leat_inner)
        except BaseException as error:
            last = isinstance(error, StopIteration)
            flags |= _core.FLAG_END if last else _core.FLAG_ERROR
            _core.end(_core.FETCH, flags, number, iteration)
            raise
        size = _hooks_data.samples(batch, self._leat_size)
        _core.end(_core.FETCH, flags, number, iteration | size)
        return batch

    def __getattr__(self, attribute):
        if attribute.startswith("_leat_"):
            raise AttributeError(attribute)
        return getattr(self._leat_inner, attribute)
