"""How batches are made and passed on: by workers, or the process itself with num_workers=0.

    worker process (fork, spawn or forkserver)      main process
    _worker_loop          role worker, its loader
    create_fetcher        SAMPLE, FETCH, COLLATE    the same, with num_workers=0
                          IDLE, WORKER_FETCH
    Queue: dumps          PICKLE                    Queue: loads      UNPICKLE
                                                    pin_memory        PIN

hook_fetcher.c and hook_queue.c measure; this file installs them. A fetcher is an object of torch
that lives for one iteration: its own `fetch` is replaced, not that of its class. Arguments of
torch's functions are identified by parameter name; a missing name is reported, and costs only what
depends on it.

A worker makes the batches of one loader. A forked worker inherits which one. Workers started by
spawn or forkserver read it from the configuration that multiprocessing passes to every child: an
environment variable would not reach the children of a fork server, and setting one is unsafe beside
other threads.
"""

import inspect
import multiprocessing.process
import multiprocessing.queues
import os
import threading
import time

from .. import _record
from ..profile import lines
from . import patch, process

# In the configuration: (pid of the process, loader, when it was first iterated) while it makes an
# iterator.
_KEY = "leat_loader"


class _Iterating(threading.local):
    """Of one thread: the loader whose iterator it is making, and when that was first iterated. Kept
    across a fork, unlike the state in _record."""

    loader = None
    begun = 0


_iterating = _Iterating()
_worker = None  # (dataset, loader) of this worker
_begun = {}  # loader -> time.monotonic() of its first iteration, which all processes share
_count = None


def begin_iterator(loader):
    """Called before the iterator of a loader is made. Returns the argument of end_iterator()."""
    outer = _iterating.loader, _iterating.begun
    begun = _begun.setdefault(loader, time.monotonic())
    _iterating.loader, _iterating.begun = loader, begun
    try:
        multiprocessing.process.current_process()._config[_KEY] = (os.getpid(), loader, begun)
    except Exception:
        pass
    return outer


def end_iterator(outer):
    _iterating.loader, _iterating.begun = outer
    try:
        multiprocessing.process.current_process()._config.pop(_KEY, None)
    except Exception:
        pass


def _own_loader():
    """The loader of this worker process; -1 if unknown."""
    if _iterating.loader is not None:
        return _iterating.loader
    current = multiprocessing.process.current_process()
    pid, loader, begun = current._config.get(_KEY, (None, -1, 0))
    if pid != current._parent_pid:
        return -1
    _iterating.begun = begun
    return loader


def _loader_of(fetcher):
    """The loader of a fetcher; None if its batches stay inside a worker or a dataset."""
    if _worker is None:
        return _iterating.loader
    if fetcher.dataset is _worker[0]:
        return max(_worker[1], 0)
    return None  # of a loader inside the worker


def _time_fetcher(fetcher):
    """Called with each fetcher that is made, except during the making or calling of another one."""
    try:
        from torch.utils.data._utils import fetch

        loader = _loader_of(fetcher)
        if loader is None:
            return
        iterable = type(fetcher) is fetch._IterableDatasetFetcher
        if not iterable and type(fetcher) is not fetch._MapDatasetFetcher:
            raise TypeError(type(fetcher))
        _record.time_fetcher(fetcher, _count, loader, iterable, not fetcher.auto_collation)
        lines.start(_iterating.begun)
    except Exception:
        patch.missing("fetcher")


def _arguments(function, args, kwargs):
    """{parameter: argument} of a call."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except Exception:
        return {}


def _make_worker_loop(original):
    def _worker_loop(*args, **kwargs):
        _begin_worker(_arguments(original, args, kwargs))
        return original(*args, **kwargs)

    return _worker_loop


def _begin_worker(arguments):
    """Called in the worker, before its loop. Only the making of batches is recorded there."""
    global _worker
    _worker = None, -1  # a worker, even if the rest fails
    try:
        number = arguments.get("worker_id")
        if type(number) is not int or not 0 <= number < 1 << 31:
            number = -1
            patch.missing("_worker_loop: worker_id")
        process.take_role(_record.ROLE_WORKER, number)
        process.signals(_record.SIGNAL_WORKER)
        _worker = arguments.get("dataset"), _own_loader()
        if _worker[0] is None:
            patch.missing("_worker_loop: dataset")
        _record.worker(number, _worker[1])
        queue = arguments.get("data_queue")
        if isinstance(queue, multiprocessing.queues.Queue):
            _record.set_data_queue(queue)
        else:
            patch.missing("_worker_loop: data_queue")
    except Exception:
        patch.missing("worker")


def _make_pin_loop(original):
    def _pin_memory_loop(*args, **kwargs):
        queue = _arguments(original, args, kwargs).get("in_queue")
        if queue is None:
            patch.missing("_pin_memory_loop: in_queue")
        _record.set_pin_queue(queue)
        try:
            return original(*args, **kwargs)
        finally:
            _record.set_pin_queue(None)

    return _pin_memory_loop


def _install_queues(worker, pin_memory):
    """Only in the queues of multiprocessing: they get a subclass of their pickler, so other users
    of ForkingPickler are not affected."""
    from multiprocessing import queues

    from torch._utils import ExceptionWrapper

    pickler = queues._ForkingPickler
    ended = worker._IterableDatasetStopIteration, ExceptionWrapper
    _record.set_queue_functions(
        pickler.dumps, pickler.loads, getattr(pin_memory, "pin_memory", None), ended
    )

    class Pickler(pickler):
        dumps = _record.dumps
        loads = _record.loads

    patch.patch(queues, "_ForkingPickler", lambda _: Pickler, "queues", wraps=False)
    patch.patch(pin_memory, "pin_memory", lambda _: _record.pin_memory, "pin_memory", wraps=False)
    patch.patch(pin_memory, "_pin_memory_loop", _make_pin_loop, "_pin_memory_loop")


def install(count):
    """count(batch, expected) -> samples in a batch."""
    global _count
    from torch.utils.data import _DatasetKind
    from torch.utils.data._utils import collate, pin_memory, worker

    _count = count
    _record.on_missing(patch.missing)
    patch.patch(worker, "_worker_loop", _make_worker_loop, "worker._worker_loop")

    def make(original):
        _record.set_create_function(original, _time_fetcher, collate.default_collate)
        return _record.create_fetcher

    patch.patch(_DatasetKind, "create_fetcher", make, "create_fetcher", wraps=False)
    try:
        _install_queues(worker, pin_memory)
    except Exception:
        patch.missing("queues")
