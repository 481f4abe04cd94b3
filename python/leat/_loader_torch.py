"""Iterators of leat.DataLoader that run through torch's own machinery.

They are torch's iterators with three things added where a batch is taken: the time the consumer
waited is counted, a batch is moved when a device was asked for, and a state that was loaded is
honoured. The last needs care, as torch keeps no state of its own:

    map-style   the index sampler is wrapped. Before its first draw the random state it will draw
                from is noted; on resuming, that state is put back for the length of the skipped
                draws, so the same order comes, and what was read before is not read again
    iterable    what was read before is read and dropped: nothing else is known of such a dataset

The classes keep torch's names, which appear in profiles and in messages.
"""

import itertools
import time

import torch
from torch.utils.data import dataloader

_TorchSingle = dataloader._SingleProcessDataLoaderIter
_TorchMulti = dataloader._MultiProcessingDataLoaderIter


class Pass:
    """One pass over the data: what its iterator and state_dict() share."""

    def __init__(self, epoch, counts, device=None, skip=0, random=None):
        self.epoch = epoch
        self.batches = 0  # handed out, those before a resume included
        self.device = device
        self.skip = skip  # batches that an earlier process has had
        self.random = random  # random states from which the order is drawn, or None
        self.counts = counts
        self.ended = False

    def state(self):
        if self.ended:
            return {"epoch": self.epoch + 1, "batches": 0, "random": None}
        return {"epoch": self.epoch, "batches": self.batches, "random": self.random}


class Indices:
    """The loader's index sampler, as the iterator sees it."""

    def __init__(self, inner, shared):
        self.inner = inner
        self.shared = shared
        self.batch_size = getattr(inner, "batch_size", None)

    def __len__(self):
        return len(self.inner)

    def __iter__(self):
        # The pass is taken now: the body of a generator runs when the first index is asked for,
        # and then a second iterator may have begun.
        return self._walk(self.shared.current)

    def _walk(self, this):
        generators = list(_generators(self.inner))
        skip = this.skip if this is not None else 0
        if not skip:
            if this is not None:
                this.random = [generator.get_state() for generator in generators]
            yield from self.inner
            return
        drawn = _begin_again(self.inner, generators, this.random, skip)
        yield from drawn


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


def _begin_again(sampler, generators, states, skip):
    """An iterator over the sampler after its first `skip` items, drawn from the noted states.
    torch's own generator is left as it was found; one that a sampler holds goes on from here."""
    before = torch.default_generator.get_state()
    if states is not None and len(states) == len(generators):
        for generator, state in zip(generators, states):
            generator.set_state(state)
    try:
        walk = iter(sampler)
        for _ in itertools.islice(walk, skip):
            pass
    finally:
        torch.default_generator.set_state(before)
    return walk


def move(data, device):
    """The same structure with its tensors on the device; what is no tensor is left alone."""
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        moved = {key: move(value, device) for key, value in data.items()}
        return moved if type(data) is dict else type(data)(moved)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(move(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(move(value, device) for value in data)
    if hasattr(data, "to"):
        return data.to(device)
    return data


class _Counting:
    """What is added to an iterator of torch's."""

    _leat_pass = None

    def _next_data(self):
        this = self._leat_pass
        t0 = time.monotonic_ns()
        try:
            if this.skip and this.batches < this.skip:
                if self._dataset_kind == dataloader._DatasetKind.Iterable:
                    while this.batches < this.skip:
                        super()._next_data()
                        this.batches += 1
                this.batches = this.skip
            data = super()._next_data()
        except StopIteration:
            this.ended = True
            raise
        finally:
            this.counts.wait_ns += time.monotonic_ns() - t0
        this.batches += 1
        this.counts.batches += 1
        return data if this.device is None else move(data, this.device)


class _SingleProcessDataLoaderIter(_Counting, _TorchSingle):
    pass


class _MultiProcessingDataLoaderIter(_Counting, _TorchMulti):
    pass


def iterator_over(loader):
    if loader.num_workers == 0:
        return _SingleProcessDataLoaderIter(loader)
    loader.check_worker_number_rationality()
    return _MultiProcessingDataLoaderIter(loader)
