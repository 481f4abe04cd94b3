"""Index batches of torch's samplers, with what a saved state needs.

torch keeps no state of an order that it draws. So the loader's index sampler is wrapped: before the
first index is drawn, the states of all generators it may draw from are kept. To resume, they are
put back and as many index batches as were consumed are drawn again and discarded. The same order
follows, and the samples are not read again.
"""

import itertools

import torch
from torch.utils.data import BatchSampler, RandomSampler

from leat.loader.bucket_sampler import BucketSampler


class ResumableIndices:
    """The loader's index sampler, as an iterator uses it. `as_tensors`: index batches may be
    tensors."""

    def __init__(self, sampler, shared, as_tensors=False):
        self.sampler = sampler
        self.shared = shared
        self.as_tensors = as_tensors
        self.batch_size = getattr(sampler, "batch_size", None)

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        # The pass is looked up now: a second one may have begun when the first index is drawn.
        return _IndexIterator(self.sampler, self.shared.current_pass, self.as_tensors)


class _IndexIterator:
    """Index batches of one pass. Nothing is drawn before the first one is asked for."""

    def __init__(self, sampler, this_pass, as_tensors):
        self.sampler = sampler
        self.this_pass = this_pass
        self.as_tensors = as_tensors
        self.iterator = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.iterator is None:
            self.iterator = self._begin()
        return next(self.iterator)

    @property
    def remaining(self):
        """How many batches are left, where that is known; else None."""
        return getattr(self.iterator, "remaining", None)

    def _begin(self):
        this_pass = self.this_pass
        if isinstance(self.sampler, BucketSampler):
            this_pass.sampler_pass = self.sampler.begin(this_pass.sampler_state)
            return this_pass.sampler_pass
        generators = list(_generators_of(self.sampler))
        if not this_pass.skip:
            this_pass.rng_states = [generator.get_state() for generator in generators]
            return self._iterate()
        # torch's global generator is left as it was; the generator of a sampler advances.
        global_state = torch.default_generator.get_state()
        saved = this_pass.rng_states
        if saved is not None and len(saved) == len(generators):
            for generator, state in zip(generators, saved):
                generator.set_state(state)
        try:
            iterator = self._iterate()
            for _ in itertools.islice(iterator, this_pass.skip):
                pass
        finally:
            torch.default_generator.set_state(global_state)
        return iterator

    def _iterate(self):
        if isinstance(self.sampler, RankBatches):
            return self.sampler.batches_of(self.this_pass.epoch)
        if self.as_tensors and ShuffledBatches.can_replace(self.sampler):
            return ShuffledBatches(self.sampler)
        return iter(self.sampler)


def _generators_of(sampler):
    """The generators an order may be drawn from: torch's global one, and those of the samplers."""
    yield torch.default_generator
    for _ in range(4):  # a batch sampler over a sampler; deeper nesting is rare
        generator = getattr(sampler, "generator", None)
        if isinstance(generator, torch.Generator):
            yield generator
        sampler = getattr(sampler, "sampler", None)
        if sampler is None:
            return


class ShuffledBatches:
    """The index batches of BatchSampler(RandomSampler(...)) as tensors: the same numbers from the
    same draws, without a Python object for each index."""

    def __init__(self, batch_sampler):
        sampler = batch_sampler.sampler
        self.batch_size = batch_sampler.batch_size
        self.count = len(sampler.data_source)
        self.generator = sampler.generator
        if self.generator is None:
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
            self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(self.count, generator=self.generator)
        self.position = 0
        self.remaining = len(batch_sampler)

    @staticmethod
    def can_replace(batch_sampler):
        if type(batch_sampler) is not BatchSampler or type(batch_sampler.sampler) is not (
            RandomSampler
        ):
            return False
        sampler = batch_sampler.sampler
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)

    def __iter__(self):
        return self

    def __next__(self):
        if self.remaining <= 0:
            if self.remaining == 0:
                # RandomSampler draws once more at its end, and the generator may be shared.
                torch.randperm(self.count, generator=self.generator)
                self.remaining = -1
            raise StopIteration
        self.remaining -= 1
        self.position += self.batch_size
        return self.order[self.position - self.batch_size : self.position]


class RankBatches:
    """One rank's index batches, divided as the engine divides its own orders: of each step the
    rank's batch, of the remainder an even part. Single indices when batch_size is None."""

    def __init__(self, count, batch_size, drop_last, world, seed):
        self.count = count
        self.single_indices = batch_size is None
        self.batch_size = 1 if self.single_indices else batch_size
        self.drop_last = drop_last
        self.rank, self.world_size = world
        self.seed = seed  # None: in the order of the data

    def _layout(self):
        """(whole steps, begin and end of this rank's part of the remainder)."""
        steps, remainder = divmod(self.count, self.batch_size * self.world_size)
        base, larger_parts = divmod(remainder, self.world_size)
        begin = self.count - remainder + self.rank * base + min(self.rank, larger_parts)
        size = 0 if self.drop_last else base + (self.rank < larger_parts)
        return steps, begin, begin + size

    def __len__(self):
        steps, begin, end = self._layout()
        return steps + (end > begin)

    def batches_of(self, epoch):
        order = torch.arange(self.count)
        if self.seed is not None:
            generator = torch.Generator().manual_seed((self.seed + epoch) % (1 << 63))
            order = torch.randperm(self.count, generator=generator)
        steps, begin, end = self._layout()
        for step in range(steps):
            start = (step * self.world_size + self.rank) * self.batch_size
            yield self._as_python(order[start : start + self.batch_size])
        if end > begin:
            yield self._as_python(order[begin:end])

    def _as_python(self, indices):
        indices = indices.tolist()
        return indices[0] if self.single_indices else indices
