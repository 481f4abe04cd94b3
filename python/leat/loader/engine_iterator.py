"""The iterator of leat.DataLoader whose batches the engine makes.

    engine's order    start an epoch (or resume one), take batches
    torch's order     draw index batches from torch's samplers, submit them, take batches

It is a torch iterator: profilers and `leat run` see it, and torch's random numbers are drawn as
torch draws them. A tensor handed out lies in the engine's slot. The slot is not filled again while
the tensor or a view of it exists.

With device="cuda" the engine also copies: the copy of a batch is enqueued when its last sample is
made, and the tensors handed out lie on the GPU. Only the consumer's current stream waits for them.

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
from leat.loader.collate import VariableField
from leat.loader.index_batches import draw_as_random_sampler

# Index batches that are drawn ahead of the consumer, at most. The engine takes fewer large ones.
MAX_DRAWN_AHEAD = 16
ON_ERROR = {
    "raise": _engine.ON_ERROR_RAISE,
    "skip": _engine.ON_ERROR_SKIP,
    "replace": _engine.ON_ERROR_REPLACE,
}
_SUBMITTED = object()  # in the queue: the engine makes this batch
_END = object()
_device_engines = weakref.WeakSet()  # CUDA must be released before the interpreter exits


class LoaderEngine:
    """A loader of the C library, what it was made for, and the counters it is part of."""

    def __init__(self, key, core, counters):
        self.key = key
        self.core = core
        self.counters = counters
        with counters.lock:
            counters.engines.add(self)

    def state(self):
        with self.counters.lock:
            return None if self.core is None else self.core.state()

    def close(self):
        with self.counters.lock:
            core, self.core = self.core, None
            if core is not None:
                self.counters.add_closed(core)
        if core is not None:
            core.close()

    def __del__(self):
        self.close()


@atexit.register
def _close_device_engines():
    for engine in list(_device_engines):
        engine.close()


# ---- Options.


def _options(loader, spec):
    rank, world_size = loader._leat_world() if spec.order is not None else (0, 1)
    return {
        "drop_last": bool(loader.drop_last),
        "order": _engine.ORDER_GIVEN if spec.order is None else spec.order,
        "rank": rank,
        "world_size": world_size,
        "threads": loader.num_threads or 0,
        "autotune": 1 if loader.autotune else -1,
        "memory_bytes": loader.memory_budget or 0,
        "on_error": ON_ERROR[loader.on_error],
        "recorder_loader": _recorder_loader(loader),
        **_device_options(loader, spec),
    }


def _recorder_loader(loader):
    """The loader's id in the recorder plus one, inside `leat run`; else 0."""
    try:
        known = sys.modules["leat.hooks.loaders"]._loaders.find(loader)
        return known[0] + 1 if known is not None else 0
    except Exception:  # only the report needs it
        return 0


def engine_copies_to_device(loader, spec):
    """Whether the engine copies batches to the GPU. torch moves fields whose samples differ in
    length, and everything for a GPU that is not NVIDIA's."""
    device = loader.device
    on_gpu = device is not None and device.type == "cuda" and not spec.variable_fields
    return on_gpu and torch.version.hip is None


def may_keep_data_on_device(loader, spec):
    """Whether all data may be copied to the GPU once, if it fits: only if device_memory was given,
    and only where a change of the data is noticed."""
    return loader.device_memory is not None and spec.version is not None


def _device_options(loader, spec):
    if not engine_copies_to_device(loader, spec):
        return {}
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"device={str(loader.device)!r}: no NVIDIA driver here (libcuda.so.1), no visible GPU, "
            "or a torch without CUDA: leave device= out, or see torch.cuda.is_available()"
        )
    torch.cuda.init()  # first, so that the context is torch's
    index = loader.device.index
    return {
        "device": 1 + (torch.cuda.current_device() if index is None else index),
        "device_bytes": loader.device_memory or 0,
        "current_stream": _current_stream_function(),
        "resident": may_keep_data_on_device(loader, spec),
    }


def _current_stream_function():
    """The address of torch's C function for the current stream of a thread, or 0. The engine calls
    it when a batch is dropped, in any thread, with or without the GIL."""
    try:
        library = ctypes.CDLL("libtorch_cuda.so", mode=4)  # RTLD_NOLOAD: only if it is loaded
        function = library.aoti_torch_get_current_cuda_stream
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _engine_for(shared, spec, options, batch_size):
    """The idle engine, if it was made with the same options; else a new one."""
    layout = None if spec.layout is None else spec.layout.engine_layout()
    version = spec.version if options.get("resident") else None
    key = (spec.key, batch_size, tuple(options.values()), layout, version)
    idle, shared.idle_engine = shared.idle_engine, None
    if idle is not None:
        if idle.key == key:
            return idle
        idle.close()
    source = spec.make_source()
    core = _engine.Engine(source, batch_size, layouts=_layouts(spec, source), **options)
    engine = LoaderEngine(key, core, shared.counters)
    if options.get("device"):
        _device_engines.add(engine)
    return engine


def _layouts(spec, source):
    """The layout of each field: lists of bytes, and spec.layout for all other variable ones."""
    if spec.layout is None:
        return None
    default = (_engine.LAYOUT_LIST, 0, 0, 0.0)
    chosen = spec.layout.engine_layout()
    laid_out = set(spec.variable_fields) - set(spec.bytes_fields)
    return tuple(chosen if f in laid_out else default for f in range(len(source.fields)))


# ---- Fields of a batch, as engine_batch.c hands them over.


def _as_tensors(field):
    if isinstance(field, list):
        return [entry if isinstance(entry, bytes) else from_dlpack(entry) for entry in field]
    if isinstance(field, tuple):
        return VariableField(*map(from_dlpack, field))
    return from_dlpack(field)


def _copy(field):
    if isinstance(field, list):
        return [entry if isinstance(entry, bytes) else entry.clone() for entry in field]
    if isinstance(field, VariableField):
        return VariableField(field.rows.clone(), field.lengths.clone())
    return field.clone()


class _EngineDataLoaderIter(dataloader._BaseDataLoaderIter):
    _engine = None
    _made_by_engine = False  # the last batch

    def __init__(self, loader, spec):
        super().__init__(loader)
        self._spec = spec
        self._shared = loader._leat_shared
        self._fetcher = None
        self._timeout_ms = int(self._timeout * 1000) if self._timeout > 0 else -1
        self._begin(loader)

    def _reset(self, loader, first_iter=False):
        """torch calls this for a loader with persistent workers: one iterator serves all passes."""
        super()._reset(loader, first_iter)
        self._release_engine()
        self._begin(loader)

    # The iterator holds no reference to the loader: the loader may hold the iterator.
    def _begin(self, loader):
        this_pass = self._leat_pass = self._shared.current_pass
        self._options = _options(loader, self._spec)
        self._device = self._options.get("device", 0) - 1  # the GPU the engine copies to, or -1
        self._queue = collections.deque()  # drawn: _SUBMITTED, (indices,) for torch, or an error
        self._unsubmitted = None  # index batch that the engine had no slot for
        self._all_drawn = False
        self._repeated = None  # sample of one more batch, see _sample_to_repeat()
        self._random_is_due = False  # torch's RandomSampler would still draw for this epoch
        if this_pass.skip and (self._spec.order is None) != (this_pass.engine_state is None):
            raise ValueError(
                "the state was saved by a loader with another kind of order: pass the same order= "
                "or sampler as there"
            )
        if self._spec.order is None:
            self._slot_samples = _largest_batch(loader)
            self._engine = self._engine_of(self._slot_samples)
            self._engine.core.start(this_pass.epoch)
            if loader.num_workers and self._shared.own_order:  # torch's workers begin now
                self._draw_ahead()
            return
        self._engine = self._engine_of(loader.batch_size)
        if this_pass.engine_state is not None:
            self._engine.core.resume(this_pass.engine_state)
        else:
            self._engine.core.start(this_pass.epoch, seed=_seed(loader, self))
            self._random_is_due = self._shared.shuffled and loader.generator is None
        this_pass.engine = self._engine
        self._repeated = self._sample_to_repeat(loader.batch_size)
        if loader.num_workers:
            self._draw_as_torch()

    def _draw_as_torch(self):
        if self._random_is_due:
            self._random_is_due = False
            draw_as_random_sampler()

    def _sample_to_repeat(self, batch_size):
        """The index of a sample; None if this rank has as many batches as the others without it.
        If fewer samples than ranks are left for the last step, the engine gives none to a rank."""
        rank, world_size = self._options["rank"], self._options["world_size"]
        if world_size == 1 or self._options["drop_last"]:
            return None
        state = self._engine.core.state()
        samples, position, end = state[4], state[8], state[13]
        remainder = max(end - position, 0) % (batch_size * world_size)
        return (rank - remainder) % samples if 0 < remainder <= rank else None

    def _engine_of(self, batch_size):
        return _engine_for(self._shared, self._spec, self._options, batch_size)

    # ---- Index batches of torch's samplers.

    def _draw_ahead(self):
        """Submits index batches to the engine, as many as it takes and as may be drawn now."""
        limit = MAX_DRAWN_AHEAD if self._spec.prefetch else 1
        while not self._all_drawn and len(self._queue) < limit:
            batch, self._unsubmitted = self._unsubmitted, None
            if batch is None:
                if self._queue and self._sampler_would_end():
                    return
                try:
                    batch = self._next_index()
                except StopIteration:
                    self._all_drawn = True
                    return
                except Exception as error:
                    self._queue.append(error)
                    return
            if not self._submit(batch):
                return

    def _sampler_would_end(self):
        """torch's random sampler draws from its generator once more at its end. The generator may
        be shared, so that must not happen earlier than in torch."""
        return self._sampler_iter.remaining == 0

    def _submit(self, batch):
        """False when a batch must be taken first."""
        indices = self._engine_indices(batch)
        if indices is None or not len(indices):
            self._queue.append((batch,))  # torch's fetcher makes the batch, or raises its error
            return True
        if len(indices) > self._slot_samples:
            self._unsubmitted = batch
            if self._queue:
                return False
            self._grow_slots(len(indices))
            self._unsubmitted = None
        try:
            accepted = self._engine.core.submit(_address(indices), len(indices))
        except IndexError:
            self._queue.append((batch,))
            return True
        if accepted:
            self._queue.append(_SUBMITTED)
        else:
            self._unsubmitted = batch
        return accepted

    def _grow_slots(self, samples):
        """A batch_sampler may give a larger batch than any before."""
        self._shared.largest_batch = self._slot_samples = max(samples, 2 * self._slot_samples)
        self._engine.close()
        self._engine = self._engine_of(self._slot_samples)

    def _engine_indices(self, batch):
        """The indices as int64 in memory; None when the engine cannot take them."""
        indices = _as_int64(batch)
        subset = self._spec.subset
        if indices is None or subset is None:
            return indices
        indices = torch.as_tensor(indices)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(subset)):
            return None
        return subset[indices]

    # ---- Batches.

    def _next_data(self):
        this_pass = self._leat_pass
        if self._engine is None:
            raise StopIteration
        self._draw_as_torch()
        data = self._next_submitted() if self._spec.order is None else self._take()
        if data is _END and self._repeated is not None:
            index, self._repeated = self._repeated, None
            data = self._fetch([index])
        if data is _END:
            this_pass.ended = True
            self._release_engine()
            raise StopIteration
        this_pass.batches += 1
        if self._device >= 0 and self._made_by_engine:
            return data
        if self._pin_memory:
            data = dataloader._utils.pin_memory.pin_memory(data, self._pin_memory_device)
        return data if this_pass.mover is None else this_pass.mover(data)

    def _next_submitted(self):
        self._draw_ahead()
        if not self._queue:
            return _END
        entry = self._queue.popleft()
        if entry is _SUBMITTED:
            return self._take()
        if isinstance(entry, Exception):
            raise entry
        return self._fetch(entry[0])

    def _fetch(self, indices):
        """A batch that torch's fetcher makes."""
        if self._fetcher is None:
            self._fetcher = dataloader._DatasetKind.create_fetcher(
                self._dataset_kind, self._dataset, True, self._collate_fn, self._drop_last
            )
        self._made_by_engine = False
        return self._fetcher.fetch(indices)

    def _take(self):
        self._made_by_engine = True
        result = self._engine.core.next(self._timeout_ms, self._consumer_stream())
        if result is None:
            return _END
        if result is False:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        nearly_full, fields = result
        fields = [_as_tensors(field) for field in fields]
        if nearly_full:  # few slots are left: the consumer keeps batches
            fields = [_copy(field) for field in fields]
        batch = self._spec.build_batch(fields)
        layout = self._spec.layout
        return batch if layout is None else layout.of_engine(batch)

    def _consumer_stream(self):
        """The CUDA stream that waits for the batch; 0 without a device."""
        return torch._C._cuda_getCurrentRawStream(self._device) if self._device >= 0 else 0

    # ---- The end.

    def _release_engine(self):
        """The engine is kept for the next iteration, unless another one is idle already."""
        engine, self._engine = self._engine, None
        if engine is None or engine.core is None:
            return
        if self._leat_pass.engine is engine:
            self._leat_pass.release_engine()
        if self._shared.idle_engine is None:
            self._shared.idle_engine = engine
        else:
            engine.close()

    def __del__(self):
        try:
            self._release_engine()
        except Exception:  # at interpreter exit
            pass


def _seed(loader, iterator):
    """Without seed= it is the number that torch has just drawn for its workers: it differs between
    loaders and epochs, and torch.manual_seed() repeats it. Ranks that share the data must agree, so
    there it is 0, as in torch's DistributedSampler."""
    if loader.seed is not None:
        return loader.seed
    if iterator._spec.order == _engine.ORDER_SEQUENTIAL and loader.on_error != "replace":
        return 0  # nothing is drawn
    return 0 if loader._leat_is_sharded() else iterator._base_seed


def _largest_batch(loader):
    batches = loader.batch_sampler
    size = batches.largest_batch if type(batches) is BucketSampler else None
    size = size or getattr(batches, "batch_size", None)
    return max(size if type(size) is int else 0, loader._leat_shared.largest_batch, 1)


def _as_int64(batch):
    """The index batch as int64 in memory; None when it holds anything but integers."""
    if isinstance(batch, torch.Tensor):
        if batch.dim() != 1 or batch.dtype.is_floating_point or batch.dtype == torch.bool:
            return None
        return batch.to(torch.int64).contiguous()
    if not isinstance(batch, (list, tuple)):
        return None
    kinds = set(map(type, batch))
    if kinds - {int}:
        if not all(issubclass(kind, (int, numpy.integer)) and kind is not bool for kind in kinds):
            return _stack_indices(batch)
        batch = list(map(int, batch))
    try:
        return array.array("q", batch)
    except OverflowError:
        return None


def _stack_indices(batch):
    for index in batch:
        if type(index) is not torch.Tensor or index.dim() or index.dtype != torch.int64:
            return None
    return torch.stack(list(batch))


def _address(indices):
    if isinstance(indices, torch.Tensor):
        return indices.data_ptr()
    return indices.buffer_info()[0]
