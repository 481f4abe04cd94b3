"""Iterators of leat.DataLoader that run through torch's own machinery.

They are torch's iterators with three things added where a batch is taken: the time the consumer
waited is counted, a batch is moved when a device was asked for (Mover), and a state that was loaded
is honoured. The last needs care, as torch keeps no state of its own:

    map-style   the index sampler is wrapped. Before its first draw the random state it will draw
                from is noted; on resuming, that state is put back for the length of the skipped
                draws, so the same order comes, and what was read before is not read again
    iterable    what was read before is read and dropped: nothing else is known of such a dataset

The classes keep torch's names, which appear in profiles and in messages.
"""

import itertools
import time

import torch
from torch.utils.data import BatchSampler, RandomSampler, dataloader

from leat.loader.bucket_sampler import BucketSampler

_TorchSingle = dataloader._SingleProcessDataLoaderIter
_TorchMulti = dataloader._MultiProcessingDataLoaderIter


class Pass:
    """One pass over the data: what its iterator and state_dict() share."""

    def __init__(self, state, counts, device=None):
        self.epoch = state["epoch"]
        self.skip = state["batches"]  # what an earlier process has had
        self.batches = self.skip  # handed out, those before a resume included
        self.random = state["random"]  # the states the order is drawn from, once it is
        self.engine = state["engine"] and tuple(state["engine"])  # where the engine stood
        self.running = None  # the engine that has this pass now
        self.sampler = state.get("sampler")  # where a sampler stood that has a state of its own
        self.walk = None  # and its pass
        self.mover = None if device is None else Mover(device)
        self.counts = counts
        self.ended = False

    def keep_state(self):
        """The engine turns to something else."""
        running = self.running
        if running is not None:
            self.engine = running.state() or self.engine
            self.running = None

    def state(self):
        if self.walk is not None:
            sampler = self.walk.state(self.batches - self.skip, self.ended)
        else:
            sampler = self.sampler
        if self.ended:
            return {**fresh_state(self.epoch + 1), "sampler": sampler}
        running = self.running
        engine = (running and running.state()) or self.engine
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "random": self.random,
            "engine": engine,
            "sampler": sampler,
        }


def fresh_state(epoch):
    return {"epoch": epoch, "batches": 0, "random": None, "engine": None, "sampler": None}


class Indices:
    """The loader's index sampler, as the iterator sees it."""

    def __init__(self, inner, shared, quick=False):
        self.inner = inner
        self.shared = shared
        self.quick = quick
        self.batch_size = getattr(inner, "batch_size", None)

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        # The pass is taken now: the first index may be asked for when a second pass has begun.
        return _Walk(self.inner, self.shared.current, self.quick)


class _Walk:
    """Index batches of one pass. Nothing is drawn before the first is asked for."""

    def __init__(self, sampler, this, quick):
        self.sampler = sampler
        self.this = this
        self.quick = quick
        self.iterator = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.iterator is None:
            self.iterator = self._begin()
        return next(self.iterator)

    @property
    def left(self):
        """How many batches come before the end, where that is known."""
        return getattr(self.iterator, "left", None)

    def _begin(self):
        this = self.this
        if isinstance(self.sampler, BucketSampler):
            this.walk = self.sampler.begin(this.sampler)
            return this.walk
        generators = list(_generators(self.sampler))
        if not this.skip:
            this.random = [generator.get_state() for generator in generators]
            return self._iterate()
        # torch's own generator is left as it was found; one that a sampler holds goes on.
        before = torch.default_generator.get_state()
        if this.random is not None and len(this.random) == len(generators):
            for generator, state in zip(generators, this.random):
                generator.set_state(state)
        try:
            iterator = self._iterate()
            for _ in itertools.islice(iterator, this.skip):
                pass
        finally:
            torch.default_generator.set_state(before)
        return iterator

    def _iterate(self):
        batches = self.sampler
        if isinstance(batches, RankBatches):
            return batches.walk(self.this.epoch)
        if self.quick and RandomBatches.can_stand_for(batches):
            return RandomBatches(batches)
        return iter(batches)


def _generators(sampler):
    """The generators an order may be drawn from: torch's own, and those the samplers hold."""
    yield torch.default_generator
    for _ in range(4):  # a batch sampler over a sampler, seldom deeper
        generator = getattr(sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            yield generator
        sampler = getattr(sampler, "sampler", None)
        if sampler is None:
            return


class RandomBatches:
    """What BatchSampler over RandomSampler gives, as tensors: the same numbers from the same
    draws, without a Python object for each index."""

    def __init__(self, batches):
        sampler = batches.sampler
        self.size = batches.batch_size
        self.count = len(sampler.data_source)
        self.generator = sampler.generator
        if self.generator is None:
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
            self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(self.count, generator=self.generator)
        self.at = 0
        self.left = len(batches)

    @staticmethod
    def can_stand_for(batches):
        if type(batches) is not BatchSampler or type(batches.sampler) is not RandomSampler:
            return False
        sampler = batches.sampler
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)

    def __iter__(self):
        return self

    def __next__(self):
        if self.left <= 0:
            if self.left == 0:
                # RandomSampler draws once more before it ends, and others may draw after it.
                torch.randperm(self.count, generator=self.generator)
                self.left = -1
            raise StopIteration
        self.left -= 1
        self.at += self.size
        return self.order[self.at - self.size : self.at]


class RankBatches:
    """One rank's index batches, by the rule of the engine's own orders: of each step the r-th
    batch, of the rest an even part. Single indices when batch_size is None."""

    def __init__(self, count, batch_size, drop_last, world, seed):
        self.count = count
        self.single = batch_size is None
        self.batch_size = 1 if self.single else batch_size
        self.drop_last = drop_last
        self.rank, self.world_size = world
        self.seed = seed  # None: in the order of the data

    def _tail(self):
        """(whole steps, first and end of this rank's part of the rest)."""
        steps, rest = divmod(self.count, self.batch_size * self.world_size)
        base, more = divmod(rest, self.world_size)
        first = self.count - rest + self.rank * base + min(self.rank, more)
        size = 0 if self.drop_last else base + (self.rank < more)
        return steps, first, first + size

    def __len__(self):
        steps, first, end = self._tail()
        return steps + (end > first)

    def walk(self, epoch):
        order = torch.arange(self.count)
        if self.seed is not None:
            generator = torch.Generator().manual_seed((self.seed + epoch) % (1 << 63))
            order = torch.randperm(self.count, generator=generator)
        steps, first, end = self._tail()
        for step in range(steps):
            at = (step * self.world_size + self.rank) * self.batch_size
            yield self._one(order[at : at + self.batch_size])
        if end > first:
            yield self._one(order[first:end])

    def _one(self, indices):
        indices = indices.tolist()
        return indices[0] if self.single else indices


def move(data, device, one=None):
    """The same structure with its tensors on the device; what is no tensor is left alone. `one`
    moves a tensor."""
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True) if one is None else one(data)
    if isinstance(data, dict):
        moved = {key: move(value, device, one) for key, value in data.items()}
        return moved if type(data) is dict else type(data)(moved)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(move(value, device, one) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(move(value, device, one) for value in data)
    if hasattr(data, "to"):
        return data.to(device)
    return data


class Mover:
    """Moves batches to a device. To a GPU they go from page-locked memory on a stream of their own,
    beside what the consumer's stream still computes; that one then waits for them. What is no
    plain tensor in the CPU's memory moves as it likes, on the consumer's stream."""

    def __init__(self, device):
        self.device = device
        self.copies = None

    def __call__(self, data):
        device = self.device
        if device.type != "cuda" or not torch.cuda.is_available():
            return move(data, device)
        if torch.cuda.is_current_stream_capturing():  # it may not wait for another one
            return move(data, device)
        if self.copies is None:
            self.copies = torch.cuda.Stream(device)
        consumer = torch.cuda.current_stream(device)
        moved = move(data, device, lambda tensor: self._enqueue(tensor, consumer))
        consumer.wait_stream(self.copies)
        return moved

    def _enqueue(self, tensor, consumer):
        plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
        if not plain or tensor.device.type != "cpu":
            return tensor.to(self.device, non_blocking=True)
        locked = tensor if tensor.is_pinned() else tensor.pin_memory()
        with torch.cuda.stream(self.copies):
            moved = locked.to(self.device, non_blocking=True)
        moved.record_stream(consumer)
        return moved


class _Counting:
    """What is added to an iterator of torch's."""

    _leat_pass = None

    def _next_data(self):
        this = self._leat_pass
        t0 = time.monotonic_ns()
        try:
            if this.skip and self._dataset_kind == dataloader._DatasetKind.Iterable:
                skip, this.skip = this.skip, 0
                for _ in range(skip):
                    super()._next_data()
            data = super()._next_data()
        except StopIteration:
            this.ended = True
            raise
        finally:
            this.counts.wait_ns += time.monotonic_ns() - t0
        this.batches += 1
        this.counts.batches += 1
        return data if this.mover is None else this.mover(data)


class _SingleProcessDataLoaderIter(_Counting, _TorchSingle):
    pass


class _MultiProcessingDataLoaderIter(_Counting, _TorchMulti):
    pass


def iterator_over(loader):
    if loader.num_workers == 0:
        return _SingleProcessDataLoaderIter(loader)
    loader.check_worker_number_rationality()
    return _MultiProcessingDataLoaderIter(loader)
