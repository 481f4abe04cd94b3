"""The iterator of leat.DataLoader whose batches the engine makes.

    engine's order    start an epoch (or resume one), take batches
    torch's order     draw index batches from torch's samplers, hand them in, take batches

It is a torch iterator: what looks at those (profilers, `leat run`) sees it too, and torch's random
numbers are drawn as torch draws them. A tensor handed out lies in the engine's slot, and the slot
is not filled again while the tensor, or anything made of its memory, lives.

With device="cuda" the engine also copies: a batch is on its way to the GPU when its last sample is
made, and what is handed out lies there. The consumer's current stream waits for it, nobody else does.

An engine serves one iterator at a time and is kept for the next one, with its slots and threads.
"""

import array
import atexit
import collections
import ctypes
import sys
import weakref

import numpy
import torch
from torch.utils.data import dataloader
from torch.utils.dlpack import from_dlpack

from leat import _engine
from leat.loader.bucket_sampler import BucketSampler
from leat.loader.collate import Variable

# Places in the state of an engine, as leat_loader_state has them.
SEED, EPOCH, SAMPLES, POSITION, SPARE, END = 2, 3, 4, 8, 9, 13
AHEAD = (
    16  # index batches drawn ahead of the consumer, at most; the engine takes fewer of large ones
)
ON_ERROR = {
    "raise": _engine.ON_ERROR_RAISE,
    "skip": _engine.ON_ERROR_SKIP,
    "replace": _engine.ON_ERROR_REPLACE,
}
_MADE_BY_ENGINE = object()
_over = object()
_on_devices = weakref.WeakSet()  # engines that use CUDA, which goes before the interpreter does


class Running:
    """An engine, what it was made for, and the counts its figures go to when it ends."""

    def __init__(self, key, core, counts):
        self.key = key
        self.core = core
        self.counts = counts
        with counts.lock:  # whoever reads them walks over the set
            counts.running.add(self)

    def state(self):
        with self.counts.lock:
            return None if self.core is None else self.core.state()

    def close(self):
        with self.counts.lock:
            core, self.core = self.core, None
            if core is not None:
                self.counts.fold(core)
        if core is not None:
            core.close()

    def __del__(self):
        self.close()


def _recorder_loader(loader):
    """The loader's id in the recorder plus one, inside `leat run`; else 0."""
    try:
        known = sys.modules["leat.hooks.loaders"]._loaders.find(loader)
        return known[0] + 1 if known is not None else 0
    except Exception:  # it is only for the report
        return 0


def _options(loader, lowered):
    rank, world_size = loader._leat_world() if lowered.order is not None else (0, 1)
    return {
        "drop_last": bool(loader.drop_last),
        "order": _engine.ORDER_GIVEN if lowered.order is None else lowered.order,
        "rank": rank,
        "world_size": world_size,
        "threads": loader.threads or 0,
        "autotune": 1 if loader.autotune else -1,
        "memory_bytes": loader.memory_budget or 0,
        "on_error": ON_ERROR[loader.on_error],
        "recorder_loader": _recorder_loader(loader),
        **_device_options(loader, lowered),
    }


@atexit.register
def _leave_devices():
    for running in list(_on_devices):
        running.close()


def delivers(loader, lowered):
    """Whether the engine itself brings the batches to a GPU. Fields whose samples differ in length
    are moved by torch, and so is everything for a GPU that is not NVIDIA's."""
    device = loader.device
    fit = device is not None and device.type == "cuda" and not lowered.variable
    return fit and torch.version.hip is None


def resides(loader, lowered):
    """Whether the data may be copied to the GPU as a whole, if it fits: only who gave it memory
    there has asked for that, and only where it is seen when the data changes."""
    return loader.device_memory is not None and lowered.version is not None


def _device_options(loader, lowered):
    if not delivers(loader, lowered):
        return {}
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"device={str(loader.device)!r}: no NVIDIA driver here (libcuda.so.1), no GPU that it "
            "shows, or a torch without CUDA: leave device out, or look at torch.cuda.is_available()"
        )
    torch.cuda.init()  # first: the context is then the one torch made
    index = loader.device.index
    return {
        "device": 1 + (torch.cuda.current_device() if index is None else index),
        "device_bytes": loader.device_memory or 0,
        "current_stream": _current_stream(),
        "resident": resides(loader, lowered),
    }


def _current_stream():
    """The address of torch's C function that tells a thread's current stream; 0: there is none.
    The engine asks it when a batch is dropped, by whatever thread, with the GIL or without."""
    try:
        library = ctypes.CDLL("libtorch_cuda.so", mode=4)  # RTLD_NOLOAD: the one that is there
        function = library.aoti_torch_get_current_cuda_stream
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _engine_for(shared, lowered, options, batch_size):
    """The engine that rests, if it was made for the same; else a new one."""
    layout = None if lowered.layout is None else lowered.layout.engine_layout()
    version = lowered.version if options.get("resident") else None
    key = (lowered.key, batch_size, tuple(options.values()), layout, version)
    resting, shared.resting = shared.resting, None
    if resting is not None:
        if resting.key == key:
            return resting
        resting.close()
    source = lowered.source()
    core = _engine.Engine(source, batch_size, layouts=_layouts(lowered, source), **options)
    running = Running(key, core, shared.counts)
    if options.get("device"):
        _on_devices.add(running)
    return running


def _layouts(lowered, source):
    """What the engine makes of each field: lists of bytes, and what was asked for of the others."""
    if lowered.layout is None:
        return None
    plain = (_engine.LAYOUT_LIST, 0, 0, 0.0)
    laid = lowered.layout.engine_layout()
    laid_out = set(lowered.variable) - set(lowered.as_bytes)
    return tuple(laid if f in laid_out else plain for f in range(len(source.fields)))


def _leaf(handed):
    """What the engine hands over of a field (see engine_batch.c), as tensors."""
    if isinstance(handed, list):
        return [entry if isinstance(entry, bytes) else from_dlpack(entry) for entry in handed]
    if isinstance(handed, tuple):
        return Variable(*map(from_dlpack, handed))
    return from_dlpack(handed)


def _copy(leaf):
    if isinstance(leaf, list):
        return [entry if isinstance(entry, bytes) else entry.clone() for entry in leaf]
    if isinstance(leaf, Variable):
        return Variable(leaf.rows.clone(), leaf.lengths.clone())
    return leaf.clone()


class _EngineDataLoaderIter(dataloader._BaseDataLoaderIter):
    _running = None
    _delivered = False  # whether the engine made the last batch, where it belongs

    def __init__(self, loader, lowered):
        super().__init__(loader)
        self._lowered = lowered
        self._shared = loader._leat_shared
        self._fetcher = None
        self._timeout_ms = int(self._timeout * 1000) if self._timeout > 0 else -1
        self._begin(loader)

    def _reset(self, loader, first_iter=False):
        """A loader with persistent workers is served by one iterator, here as there."""
        super()._reset(loader, first_iter)
        self._rest()
        self._begin(loader)

    # The loader itself is not kept: it may keep this iterator, and neither would go.
    def _begin(self, loader):
        this = self._leat_pass = self._shared.current
        self._options = _options(loader, self._lowered)
        self._device = self._options.get("device", 0) - 1  # the one the engine delivers to, or -1
        self._queue = collections.deque()  # of what was drawn: made by the engine, or to be made
        self._held_back = None
        self._drawn_all = False
        if this.skip and (self._lowered.order is None) != (this.engine is None):
            raise ValueError("the state was saved by a loader with another kind of order")
        if self._lowered.order is None:
            self._limit = _batch_limit(loader)
            self._running = self._engine(self._limit)
            self._running.core.start(this.epoch)
        else:
            self._running = self._engine(loader.batch_size)
            self._running.core.resume(this.engine or self._fresh_state(_seed(loader, self)))
            this.running = self._running

    def _engine(self, batch_size):
        return _engine_for(self._shared, self._lowered, self._options, batch_size)

    def _fresh_state(self, seed):
        state = list(self._running.core.state())
        state[SEED] = seed
        state[EPOCH] = self._leat_pass.epoch
        state[POSITION] = state[SPARE] = 0
        state[END] = state[SAMPLES]
        return tuple(state)

    # ---- Index batches of torch's samplers.

    def _draw_more(self):
        """Hands index batches to the engine, as many as it takes and may be drawn yet."""
        most = AHEAD if self._lowered.ahead else 1
        while not self._drawn_all and len(self._queue) < most:
            batch, self._held_back = self._held_back, None
            if batch is None:
                if self._queue and self._reaches_end():
                    return
                try:
                    batch = self._next_index()
                except StopIteration:
                    self._drawn_all = True
                    return
                except Exception as error:
                    self._queue.append(error)
                    return
            if not self._hand_in(batch):
                return

    def _reaches_end(self):
        """torch's random sampler draws from its generator once more at the end. Others may draw
        from it too: that must not come sooner than it does in torch."""
        return self._sampler_iter.left == 0

    def _hand_in(self, batch):
        """False when it has to wait for a batch to be taken."""
        indices = self._plain(batch)
        if indices is None or not len(indices):
            self._queue.append((batch,))  # torch's own fetcher makes it, or its error
            return True
        if len(indices) > self._limit:
            self._held_back = batch
            if self._queue:
                return False
            self._grow(len(indices))
            self._held_back = None
        try:
            taken = self._running.core.submit(_address(indices), len(indices))
        except IndexError:
            self._queue.append((batch,))
            return True
        if taken:
            self._queue.append(_MADE_BY_ENGINE)
        else:
            self._held_back = batch
        return taken

    def _grow(self, size):
        """Batches of any size may come from a batch_sampler: the slots follow the largest."""
        self._shared.largest = self._limit = max(size, 2 * self._limit)
        self._running.close()
        self._running = self._engine(self._limit)

    def _plain(self, batch):
        """The indices as int64 in memory; None when they are anything but whole numbers."""
        indices = _as_int64(batch)
        through = self._lowered.through
        if indices is None or through is None:
            return indices
        indices = torch.as_tensor(indices)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(through)):
            return None
        return through[indices]

    # ---- Batches.

    def _next_data(self):
        this = self._leat_pass
        if self._running is None:
            raise StopIteration
        if self._lowered.order is None:
            data = self._next_given()
        else:
            data = self._take()
        if data is _over:
            this.ended = True
            self._rest()
            raise StopIteration
        this.batches += 1
        if self._device >= 0 and self._delivered:
            return data
        if self._pin_memory:
            data = dataloader._utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data if this.mover is None else this.mover(data)

    def _stream(self):
        """The consumer's, which waits for the batch; 0 where it does not matter."""
        return torch._C._cuda_getCurrentRawStream(self._device) if self._device >= 0 else 0

    def _next_given(self):
        self._draw_more()
        if not self._queue:
            return _over
        made = self._queue.popleft()
        if made is _MADE_BY_ENGINE:
            return self._take()
        if isinstance(made, Exception):
            raise made
        if self._fetcher is None:
            self._fetcher = dataloader._DatasetKind.create_fetcher(
                self._dataset_kind, self._dataset, True, self._collate_fn, self._drop_last
            )
        self._delivered = False
        return self._fetcher.fetch(made[0])

    def _take(self):
        self._delivered = True
        got = self._running.core.next(self._timeout_ms, self._stream())
        if got is None:
            return _over
        if got is False:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        crowded, fields = got
        leaves = [_leaf(handed) for handed in fields]
        if crowded:  # the consumer keeps its batches: the slots must not run out
            leaves = [_copy(leaf) for leaf in leaves]
        batch = self._lowered.build(leaves)
        layout = self._lowered.layout
        return batch if layout is None else layout.of_engine(batch)

    # ---- The end.

    def _rest(self):
        """The engine is kept for the next iteration, unless another one rests already."""
        running, self._running = self._running, None
        if running is None or running.core is None:
            return
        if self._leat_pass.running is running:
            self._leat_pass.keep_state()
        if self._shared.resting is None:
            self._shared.resting = running
        else:
            running.close()

    def __del__(self):
        try:
            self._rest()
        except Exception:  # the interpreter is going down, and takes everything with it
            pass


def _seed(loader, iterator):
    """Without a seed the order hangs on the number torch has just drawn for its workers: it differs
    between loaders and epochs, and torch.manual_seed() repeats it. Ranks must agree, so with
    several of them it is 0, as that of torch's DistributedSampler is."""
    if loader.seed is not None:
        return loader.seed
    if iterator._lowered.order == _engine.ORDER_SEQUENTIAL and loader.on_error != "replace":
        return 0  # nothing is drawn
    return iterator._base_seed if loader._leat_world()[1] == 1 else 0


def _batch_limit(loader):
    batches = loader.batch_sampler
    size = batches.largest if type(batches) is BucketSampler else None
    size = size or getattr(batches, "batch_size", None)
    return max(size if type(size) is int else 0, loader._leat_shared.largest, 1)


def _as_int64(batch):
    if isinstance(batch, torch.Tensor):
        if batch.dim() != 1 or batch.dtype.is_floating_point or batch.dtype == torch.bool:
            return None
        return batch.to(torch.int64).contiguous()
    if not isinstance(batch, (list, tuple)):
        return None
    kinds = set(map(type, batch))
    if kinds - {int}:
        if not all(issubclass(kind, (int, numpy.integer)) and kind is not bool for kind in kinds):
            return _from_tensors(batch)
        batch = list(map(int, batch))
    try:
        return array.array("q", batch)
    except OverflowError:
        return None


def _from_tensors(batch):
    for index in batch:
        if type(index) is not torch.Tensor or index.dim() or index.dtype != torch.int64:
            return None
    return torch.stack(list(batch))


def _address(indices):
    if isinstance(indices, torch.Tensor):
        return indices.data_ptr()
    return indices.buffer_info()[0]
