"""What makes a batch and hands it over: workers, or the process itself with num_workers=0.

    worker process (fork, spawn or forkserver)      main process
    _worker_loop          role worker, its loader
    create_fetcher        SAMPLE, FETCH, COLLATE    the same, with num_workers=0
                          IDLE, WORKER_FETCH
    Queue: dumps          PICKLE                    Queue: loads      UNPICKLE
                                                    pin_memory        PIN

The timing is in hook_fetcher.c and hook_queue.c; here is where it is put. A fetcher is an object of torch's
that lives for one iteration: its own `fetch` is replaced, not its class's. What torch's functions are
given is known by the names of their parameters, wherever they stand; a name that is not there costs
what is learnt from it, and is reported as missing.

A worker makes the batches of one loader, and learns which from the process that started it. By fork
it inherits what that thread was making an iterator of. Processes started by spawn or forkserver find
it in the configuration that multiprocessing hands to every child: an environment variable would not
reach the children of a fork server, and setting one is not safe beside other threads.
"""

import inspect
import multiprocessing.process
import multiprocessing.queues
import os
import threading
import time

from leat import _record
from leat.hooks import patch, process
from leat.profile import lines

# In the configuration: (pid of the process, loader, when it was first iterated) while it makes an
# iterator.
_KEY = "leat_loader"


class _Iterating(threading.local):
    """Of one thread: the loader of which it is making an iterator, and when it was first iterated. A
    fork takes it along."""

    loader = None
    begun = 0


_iterating = _Iterating()
_worker = None  # (dataset, loader) of this worker
_begun = {}  # loader -> time.monotonic() of its first iteration, which all processes share
_count = None


def begin_iterator(loader):
    """Before the iterator of a loader is made; gives what end_iterator() takes."""
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
    """The loader whose worker this process is; -1 if unknown."""
    if _iterating.loader is not None:
        return _iterating.loader
    current = multiprocessing.process.current_process()
    pid, loader, begun = current._config.get(_KEY, (None, -1, 0))
    if pid != current._parent_pid:
        return -1
    _iterating.begun = begun
    return loader


def _loader_of(fetcher):
    """The loader whose batches a fetcher makes; None when nobody waits for them out there."""
    if _worker is None:
        return _iterating.loader
    if fetcher.dataset is _worker[0]:
        return max(_worker[1], 0)
    return None  # of a loader that the worker uses for itself


def _dress(fetcher):
    """Called with every fetcher that is made, except inside another's making or fetching."""
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


def _given(function, args, kwargs):
    """{parameter: argument} of a call."""
    try:
        return inspect.signature(function).bind(*args, **kwargs).arguments
    except Exception:
        return {}


def _make_worker_loop(original):
    def _worker_loop(*args, **kwargs):
        _begin_worker(_given(original, args, kwargs))
        return original(*args, **kwargs)

    return _worker_loop


def _begin_worker(given):
    """In the worker, before its loop. Nothing but the batches it makes is recorded there."""
    global _worker
    _worker = None, -1  # it is one, and its fetchers are not those of its parent
    try:
        number = given.get("worker_id")
        if type(number) is not int or not 0 <= number < 1 << 31:
            number = -1
            patch.missing("_worker_loop: worker_id")
        patch.remove(threading.Condition)
        process.take_role(_record.ROLE_WORKER, number)
        process.signals(_record.SIGNAL_WORKER)
        _worker = given.get("dataset"), _own_loader()
        if _worker[0] is None:
            patch.missing("_worker_loop: dataset")
        _record.worker(number, _worker[1])
        queue = given.get("data_queue")
        if isinstance(queue, multiprocessing.queues.Queue):
            _record.feeds(queue)
        else:
            patch.missing("_worker_loop: data_queue")
    except Exception:
        patch.missing("worker")


def _make_pin_loop(original):
    def _pin_memory_loop(*args, **kwargs):
        queue = _given(original, args, kwargs).get("in_queue")
        if queue is None:
            patch.missing("_pin_memory_loop: in_queue")
        _record.serves(queue)
        try:
            return original(*args, **kwargs)
        finally:
            _record.serves(None)

    return _pin_memory_loop


def _install_handover(worker, pin_memory):
    """In the queues of multiprocessing, and there alone: the pickler they use becomes a class of its
    own, so that who uses ForkingPickler elsewhere, or derives from it, meets no change."""
    from multiprocessing import queues

    from torch._utils import ExceptionWrapper

    pickler = queues._ForkingPickler
    ended = worker._IterableDatasetStopIteration, ExceptionWrapper
    _record.handover(pickler.dumps, pickler.loads, getattr(pin_memory, "pin_memory", None), ended)

    class Pickler(pickler):
        dumps = _record.dumps
        loads = _record.loads

    patch.patch(queues, "_ForkingPickler", lambda _: Pickler, "queues", wraps=False)
    patch.patch(pin_memory, "pin_memory", lambda _: _record.pin_memory, "pin_memory", wraps=False)
    patch.patch(pin_memory, "_pin_memory_loop", _make_pin_loop, "_pin_memory_loop")


def install(count):
    """`count` tells how many samples a batch has."""
    global _count
    from torch.utils.data import _DatasetKind
    from torch.utils.data._utils import collate, pin_memory, worker

    _count = count
    _record.on_missing(patch.missing)
    patch.patch(worker, "_worker_loop", _make_worker_loop, "worker._worker_loop")

    def make(original):
        _record.on_create(original, _dress, collate.default_collate)
        return _record.create_fetcher

    patch.patch(_DatasetKind, "create_fetcher", make, "create_fetcher", wraps=False)
    try:
        _install_handover(worker, pin_memory)
    except Exception:
        patch.missing("handover")
