"""DataLoader: waits in next(), and the making of the iterator. workers.py hooks what makes the
batches.

    DataLoader.__init__            its call site
    DataLoader.__iter__            ITER
    _BaseDataLoaderIter.__next__   FETCH

An iterator has an Iteration (loader, iteration, batch size, maker) as its attribute `_leat`.
Persistent workers keep one iterator for all epochs; it gets a new Iteration in each. `maker` is the
data queue or, without workers, the Fetch of hook_fetcher.c.
"""

import types
import weakref

from .. import _record
from . import patch, process, text, user_code
from . import workers as worker_hooks
from .object_table import ObjectTable

begin = _record.begin
end = _record.end
inside = _record.inside
Iteration = _record.Iteration
FETCH = _record.FETCH
ITER = _record.ITER
ERROR = _record.FLAG_ERROR

_loaders = ObjectTable()  # DataLoader -> (id, batch size)
_made_at = ObjectTable()  # DataLoader -> (call site, call path)
_by_info = {}  # info -> [[id, weak reference, dataset and call path]]
_running = set()  # ids of loaders whose last iteration has not ended


def _length(thing):
    """First dimension of a tensor or array, length of a list of plain values; 0 if it has none."""
    shape = getattr(thing, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return 0


def _search(batch, expected):
    """Follows the first element down. Of the sizes on the way, the loader's batch size is taken if
    it is among them (lists of images have a length and a number of channels); else that of the
    first tensor, else of the innermost list."""
    sizes = []
    for _ in range(6):
        size = _length(batch)
        if size:
            sizes.append(size)
            break
        if isinstance(batch, dict):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (list, tuple)) and batch:
            sizes.append(len(batch))
            batch = batch[0]
        elif hasattr(batch, "__dict__") and not hasattr(batch, "shape"):
            batch = next(iter(vars(batch).values()), None)
        else:
            break
    if expected in sizes:
        return expected
    return sizes[-1] if sizes else 0


def samples(batch, expected=0):
    """How many samples a batch has; 0 if unknown."""
    try:
        first = batch[0] if type(batch) in (list, tuple) else batch
        size = first.shape[0]
        if size == expected:
            return size
    except Exception:
        pass
    try:
        size = _search(batch, expected)
        return size if 0 <= size < 1 << 32 else 0
    except Exception:
        return 0


def _int(value, default=-1):
    return value if isinstance(value, int) and -(1 << 31) <= value < 1 << 31 else default


def _flag(value):
    return -1 if value is None else int(bool(value))


def _class_name(kind):
    """The qualified name of a class; for leat's own, the name it is imported by."""
    own = user_code.PACKAGE == "leat" and str(kind.__module__).startswith("leat.")
    return f"leat.data.{kind.__qualname__}" if own else kind.__qualname__


def _engine_readable(loader, dataset):
    """1: leat.DataLoader with the loader's arguments makes the batches in C; 0: it does not; -1:
    unknown. The engine is imported only for datasets that it may know, and never in a worker."""
    try:
        if hasattr(loader, "_leat_runs_in_c"):
            return int(loader._leat_runs_in_c())
        if dataset is None or process.role == _record.ROLE_WORKER or user_code.PACKAGE != "leat":
            return -1
        if not _may_be_readable(dataset):
            return 0
        from leat.loader import engine_select

        return int(engine_select.can_read(loader))
    except Exception:
        return -1


def _may_be_readable(dataset):
    from torch import Tensor
    from torch.utils.data import Subset, TensorDataset

    while type(dataset) is Subset:
        dataset = dataset.dataset
    package = type(dataset).__module__.partition(".")[0]
    return isinstance(dataset, (TensorDataset, Tensor)) or package in ("leat", "numpy")


def describe(loader, where, name=None):
    """The description of a loader for the recorder. Any object will do."""

    def get(attribute):
        try:
            return getattr(loader, attribute, None)
        except Exception:
            return None

    dataset = get("dataset")
    iterable = -1
    length = -1
    if dataset is not None:
        iterable = int(not hasattr(dataset, "__getitem__") or get("_dataset_kind") == 1)
        if not iterable:  # len() of a stream may read all of it
            try:
                length = min(len(dataset), (1 << 63) - 1)
            except Exception:
                length = -1
    batch_size = get("batch_size")
    if batch_size is None:
        batch_size = getattr(get("batch_sampler"), "batch_size", None)
    # Batches of leat's own engine are made by its threads; num_workers is ignored.
    runs_in_c = get("_leat_runs_in_c")
    readable = _engine_readable(loader, dataset)
    workers = None if runs_in_c is not None and readable == 1 else get("num_workers")
    name = name or _class_name(type(loader if dataset is None else dataset))
    return (
        length,
        _int(batch_size),
        _int(workers),
        _int(get("prefetch_factor")),
        _flag(get("pin_memory")),
        _flag(get("persistent_workers")),
        iterable,
        int(runs_in_c is not None),
        readable,
        text.cut(name, 96),
        text.cut(where, 160),
    )


def register(loader, where, name=None, path=None):
    """The id and the batch size of a loader. A loader that is made again at the same call site with
    the same settings has the same id (a loop that makes one for each epoch) if its predecessor was
    deleted; or if its predecessor has been iterated to the end, and this one was made over the same
    dataset by the same call path (frameworks keep the old one)."""
    info = describe(loader, where, name)
    origin = None if path is None else (id(getattr(loader, "dataset", None)), path)
    with process.lock:
        for slot in _by_info.setdefault(info, []):
            done = origin is not None and slot[2] == origin and slot[0] not in _running
            if done or slot[1]() is None:
                slot[1:] = _weakly(loader), origin
                return slot[0], info[1]
        number = process.loader_id(info)
        _by_info[info].append([number, _weakly(loader), origin])
        return number, info[1]


def _weakly(thing):
    """A function that returns the thing, or None after it was deleted."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _new_iteration(loader):
    """The loader's id, iteration << 32, and batch size or 0, for a new Iteration."""
    known = _loaders.find(loader)
    if known is None:
        where, path = _made_at.find(loader) or (user_code.caller(), None)
        known = register(loader, where, path=path)
        _loaders.put(loader, known)
    _running.add(known[0])
    return known[0], process.next_iteration() << 32, max(known[1], 0)


class _LoaderOfIterator:
    """The attributes of a loader that its iterator has."""

    def __init__(self, iterator):
        self.dataset = getattr(iterator, "_dataset", None)
        self.num_workers = getattr(iterator, "_num_workers", None)
        self.batch_sampler = getattr(iterator, "_index_sampler", None)


def _iteration_of(iterator):
    """The Iteration of an iterator. If it was not made by DataLoader.__iter__, its loader is
    identified by its dataset."""
    try:
        iteration = getattr(iterator, "_leat", None)
        if iteration is not None:
            return iteration
        loader = _LoaderOfIterator(iterator)
        known = _loaders.find(loader.dataset)
        if known is None:
            known = register(loader, user_code.caller())
            _loaders.put(loader.dataset, known)
        number = process.next_iteration() << 32
        iteration = Iteration(known[0], number, max(known[1], 0), _maker_of(iterator))
        iterator._leat = iteration
        return iteration
    except Exception:
        return Iteration(0, 0, 0, None)


def _maker_of(iterator, fresh=False):
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        # Not vars(): it creates a dict, whose attributes Python 3.11 reads more slowly.
        fetch = getattr(fetcher, "fetch", None)
        return None if isinstance(fetch, types.MethodType) else fetch
    return _queue_of(iterator, fresh)


def _queue_of(iterator, fresh=False):
    """The queue from which an iterator with workers takes batches, to count those that are ready.
    None if it has none, or if its tasks are not (worker,), as all are before the first batch has
    come, or (worker, batch)."""
    queue = getattr(iterator, "_data_queue", None)
    if queue is None:
        if getattr(iterator, "_num_workers", 0):
            patch.missing("_data_queue")
        return None
    tasks = getattr(iterator, "_task_info", None)
    sizes = (1,) if fresh else (1, 2)
    if type(tasks) is dict and all(type(t) is tuple and len(t) in sizes for t in tasks.values()):
        return queue
    patch.missing("_task_info")
    return None


def _label_queue(iterator, loader):
    """Labels the queue that the pinning thread reads with the loader of its batches."""
    queue = getattr(iterator, "_worker_result_queue", None)
    if queue is not None:
        queue._leat = loader
    elif getattr(iterator, "_pin_memory_thread", None) is not None:
        patch.missing("_worker_result_queue")


def _make_init(original):
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if _made_at.find(self) is None:
            _made_at.put(self, (user_code.caller(), user_code.call_path()))

    return __init__


def _make_iter(compiling):
    def make(original):
        def __iter__(self):
            if compiling() or inside(FETCH):
                return original(self)
            try:
                iteration = _new_iteration(self)
            except Exception:
                iteration = (0, 0, 0)
            if not begin(ITER):
                return original(self)
            flags = ERROR
            outer = worker_hooks.begin_iterator(iteration[0])
            try:
                iterator = original(self)
                flags = 0
            finally:
                worker_hooks.end_iterator(outer)
                end(ITER, flags, iteration[0], iteration[1])
            try:
                maker = _maker_of(iterator, fresh=True)
                iterator._leat = Iteration(*iteration, maker)
                _label_queue(iterator, iteration[0])
            except Exception:
                pass
            return iterator

        return __iter__

    return make


def _make_next(owner, torch):
    """A method of C: Dynamo does not trace into the iterator of a loader, so it needs no test."""

    def make(original):
        enabled, ended = torch.is_grad_enabled, _running.discard
        _record.set_next_functions(original, enabled, samples, _iteration_of, ended)
        return _record.make_next(owner)

    return make


def install(torch):
    from torch.utils.data import dataloader

    compiling = patch.compiling_test(torch)
    loader = dataloader.DataLoader
    patch.patch(loader, "__init__", _make_init, "DataLoader.__init__")
    patch.patch(loader, "__iter__", _make_iter(compiling), "DataLoader.__iter__")
    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    make = _make_next(base, torch)
    if patch.patch(base, "__next__", make, "_BaseDataLoaderIter.__next__", wraps=False):
        process.signals(_record.SIGNAL_FETCH)
    worker_hooks.install(samples)
