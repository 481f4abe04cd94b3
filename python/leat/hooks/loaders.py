"""DataLoader: blocked in next(), and making the iterator. What makes the batches is seen by
workers.py.

    DataLoader.__init__            where it is made
    DataLoader.__iter__            ITER
    _BaseDataLoaderIter.__next__   FETCH

An iterator carries its mark (loader, iteration, batch size, maker) as an attribute, so that
persistent workers, whose iterator serves every epoch, get a new number each time it is asked for.
What makes its batches is known by the data queue, or without workers by the Fetch of hook_fetcher.c.
"""

import types
import weakref

from leat import _record
from leat.hooks import patch, process, text, user_code
from leat.hooks import workers as worker_hooks
from leat.hooks.object_table import ObjectTable

begin = _record.begin
end = _record.end
inside = _record.inside
Mark = _record.Mark
FETCH = _record.FETCH
ITER = _record.ITER
ERROR = _record.FLAG_ERROR

_loaders = ObjectTable()  # DataLoader -> id in the recorder's table
_made_at = ObjectTable()  # DataLoader -> file:line, call path
_by_info = {}  # info -> [[id, weak reference, dataset and call path]]
_running = set()  # ids of loaders whose last iteration has not come to its end


def _length(thing):
    """First dimension of a tensor or array, length of a list of plain values; 0 if it has none."""
    shape = getattr(thing, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return 0


def _search(batch, expected):
    """The slow way: follows the first element down. Of the sizes met on the way, the loader's batch
    size is taken where it is among them (lists of images have a length and a number of channels);
    else that of the first tensor, else of the innermost list."""
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
    """How many samples a batch holds; 0 if it cannot be told."""
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


def _title(kind):
    """A class of the script's is named as it is there; leat's own as it is imported."""
    own = str(kind.__module__).startswith("leat.")
    return f"leat.data.{kind.__qualname__}" if own else kind.__qualname__


def _engine_readable(loader, dataset):
    """1: leat.DataLoader with the loader's arguments makes the batches in C; 0: it does not; -1:
    unknown. The engine is imported only for datasets that it may know, and never in a worker."""
    try:
        if hasattr(loader, "_leat_runs_in_c"):
            return int(loader._leat_runs_in_c())
        if dataset is None or process.role == _record.ROLE_WORKER:
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
    """The loader's row for the recorder, from what it has: any object will do."""

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
        if not iterable:  # the length of a stream may cost a pass over it
            try:
                length = min(len(dataset), (1 << 63) - 1)
            except Exception:
                length = -1
    batch_size = get("batch_size")
    if batch_size is None:
        batch_size = getattr(get("batch_sampler"), "batch_size", None)
    # Batches of leat's own engine are made by its threads, whatever num_workers says.
    runs_in_c = get("_leat_runs_in_c")
    readable = _engine_readable(loader, dataset)
    workers = None if runs_in_c is not None and readable == 1 else get("num_workers")
    title = name or _title(type(loader if dataset is None else dataset))
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
        text.cut(title, 96),
        text.cut(where, 160),
    )


def register(loader, where, name=None, path=None):
    """The id of a loader. One that is made anew at the same place with the same settings is the
    same loader to its user (a loop that makes one for every epoch) when its predecessor is gone; or
    when that is done and kept by something, as frameworks do, while this one was made over the same
    dataset by the same calls."""
    info = describe(loader, where, name)
    kin = None if path is None else (id(getattr(loader, "dataset", None)), path)
    with process.lock:
        for slot in _by_info.setdefault(info, []):
            done = kin is not None and slot[2] == kin and slot[0] not in _running
            if done or slot[1]() is None:
                slot[1:] = _weakly(loader), kin
                return slot[0], info[1]
        number = process.loader_id(info)
        _by_info[info].append([number, _weakly(loader), kin])
        return number, info[1]


def _weakly(thing):
    """A function that gives the thing, or None once it is gone."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _mark(loader):
    """What the Mark of a fresh iteration says: the loader's id, iteration << 32, batch size or 0."""
    known = _loaders.find(loader)
    if known is None:
        where, path = _made_at.find(loader) or (user_code.caller(), None)
        known = register(loader, where, path=path)
        _loaders.put(loader, known)
    _running.add(known[0])
    return known[0], process.next_iteration() << 32, max(known[1], 0)


class _Face:
    """What an iterator shows of the loader it came from."""

    def __init__(self, iterator):
        self.dataset = getattr(iterator, "_dataset", None)
        self.num_workers = getattr(iterator, "_num_workers", None)
        self.batch_sampler = getattr(iterator, "_index_sampler", None)


def _mark_of(iterator):
    """The mark of an iterator, also of one that did not come from DataLoader.__iter__: then its
    loader is known by its dataset."""
    try:
        mark = getattr(iterator, "_leat", None)
        if mark is not None:
            return mark
        face = _Face(iterator)
        known = _loaders.find(face.dataset)
        if known is None:
            known = register(face, user_code.caller())
            _loaders.put(face.dataset, known)
        iteration = process.next_iteration() << 32
        mark = Mark(known[0], iteration, max(known[1], 0), _maker_of(iterator))
        iterator._leat = mark
        return mark
    except Exception:
        return Mark(0, 0, 0, None)


def _maker_of(iterator, fresh=False):
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        # Not by vars(): that gives it a dict, whose attributes Python reads more slowly, for each sample.
        fetch = getattr(fetcher, "fetch", None)
        return None if isinstance(fetch, types.MethodType) else fetch
    return _queue_of(iterator, fresh)


def _queue_of(iterator, fresh=False):
    """The queue that an iterator with workers takes its batches from, to count what lies ready. None
    if it has none; or if its tasks are not (worker,), as all are before the first batch has come, and
    (worker, batch)."""
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


def _name_queue(iterator, loader):
    """For the thread that pins: whose batches come out of the queue that it reads."""
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
                mark = _mark(self)
            except Exception:
                mark = (0, 0, 0)
            if not begin(ITER):
                return original(self)
            flags = ERROR
            outer = worker_hooks.begin_iterator(mark[0])
            try:
                iterator = original(self)
                flags = 0
            finally:
                worker_hooks.end_iterator(outer)
                end(ITER, flags, mark[0], mark[1])
            try:
                maker = _maker_of(iterator, fresh=True)
                iterator._leat = Mark(*mark, maker)
                _name_queue(iterator, mark[0])
            except Exception:
                pass
            return iterator

        return __iter__

    return make


def _make_next(owner, torch):
    """Straight from C: Dynamo never traces this far into a loader, so nothing need vanish."""

    def make(original):
        enabled, ended = torch.is_grad_enabled, _running.discard
        _record.on_next(original, enabled, samples, _mark_of, ended)
        return _record.next_of(owner)

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
