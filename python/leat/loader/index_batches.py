"""Index batches of torch's samplers, with what a saved state needs.

torch keeps no state of an order that it draws. So the loader's index sampler is wrapped: before the
first index is drawn, the states of all generators it may draw from are kept. To resume, they are
put back and as many indices as were consumed are drawn again and discarded. The same order follows,
in batches of any size, and the samples are not read again. A batch sampler of the user's own is
resumed by its number of batches.

An order that leat draws (a seed or shard was given) needs no generator: it continues at a position.
"""

import itertools

import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler

from leat.loader.bucket_sampler import BucketSampler


class ResumableIndices:
    """The loader's index sampler, as an iterator uses it.

    in_batches   it is a batch sampler
    draws        torch's sampler in its place would draw from torch's global generator
    as_tensors   index batches may be tensors
    """

    def __init__(self, sampler, shared, in_batches, draws, as_tensors=False):
        self.sampler = sampler
        self.shared = shared
        self.in_batches = in_batches
        self.draws = draws
        self.as_tensors = as_tensors
        self.batch_size = getattr(sampler, "batch_size", None)

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        # The pass is looked up now: a second one may have begun when the first index is drawn.
        return _IndexIterator(self, self.shared.current_pass)


class _IndexIterator:
    """Index batches of one pass. Nothing is drawn before the first one is asked for."""

    def __init__(self, index_batches, this_pass):
        self.sampler = index_batches.sampler
        self.in_batches = index_batches.in_batches
        self.draws = index_batches.draws
        self.as_tensors = index_batches.as_tensors
        self.this_pass = this_pass
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
        indices, size = self._indices()
        if isinstance(indices, OwnOrder):
            this_pass.count_samples(indices.step, len(indices.dataset))
            if self.draws and not this_pass.skip:
                draw_as_random_sampler()
            rest = indices.rest(this_pass.epoch, this_pass.start, this_pass.order["seed"])
            return iter(_batched(rest, self.sampler) if size else rest)
        if indices is not None:
            this_pass.count_samples(size or 1, len_or_none(indices))
        generators = list(_generators_of(self.sampler))
        if not this_pass.skip:
            this_pass.rng_states = [generator.get_state() for generator in generators]
            return self._iterate(0)
        saved = this_pass.rng_states or []
        if len(saved) != len(generators):
            raise ValueError(
                f"the state is of an order drawn from {len(saved)} random generators, this one is "
                f"drawn from {len(generators)}: pass generator= as to the loader that saved it"
            )
        # torch's global generator is left as it was; the generator of a sampler advances.
        global_state = torch.default_generator.get_state()
        for generator, state in zip(generators, saved):
            generator.set_state(state)
        try:
            return self._iterate(this_pass.skip if indices is None else this_pass.start)
        finally:
            torch.default_generator.set_state(global_state)

    def _indices(self):
        """(sampler of single indices, batch size); (None, None) of a batch sampler that is not
        torch's."""
        if type(self.sampler) is BatchSampler:
            return self.sampler.sampler, self.sampler.batch_size
        return (None, None) if self.in_batches else (self.sampler, None)

    def _iterate(self, consumed):
        """`consumed` counts samples, and batches for a batch sampler that is not torch's."""
        if self.as_tensors and ShuffledBatches.can_replace(self.sampler):
            return ShuffledBatches(self.sampler, consumed)
        if not consumed:
            return iter(self.sampler)
        indices, size = self._indices()
        iterator = iter(self.sampler if indices is None else indices)
        for _ in itertools.islice(iterator, consumed):
            pass
        return iter(_batched(iterator, self.sampler)) if size else iterator


def _batched(indices, batch_sampler):
    return BatchSampler(indices, batch_sampler.batch_size, batch_sampler.drop_last)


def len_or_none(sized):
    try:
        return len(sized)
    except Exception:  # the user's code
        return None


def draw_as_random_sampler():
    """Draws from torch's global generator what torch's RandomSampler draws for an epoch, so that
    the numbers drawn after it are those of a program with torch's loader."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


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

    def __init__(self, batch_sampler, start=0):
        sampler = batch_sampler.sampler
        self.batch_size = batch_sampler.batch_size
        self.count = len(sampler.data_source)
        self.generator = sampler.generator
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(draw_as_random_sampler())
        self.order = torch.randperm(self.count, generator=self.generator)
        self.position = start
        left = max(self.count - start, 0)
        self.remaining = left // self.batch_size
        if not batch_sampler.drop_last:
            self.remaining = -(-left // self.batch_size)

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


def process_group():
    """(rank, number of ranks) of torch.distributed; (0, 1) where it is not initialised."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


class OwnOrder(Sampler):
    """One rank's indices in an order that leat draws, divided as the engine divides its orders: of
    each step the rank's batch, of the remainder an even part. If fewer samples than ranks remain, a
    rank without one repeats a sample, so that all ranks have the same number of batches.

    world   (rank, number of ranks); None: those of torch.distributed
    seed    with the epoch, of the permutation; None: in the order of the data
    start   position in the order where all ranks begin: the samples before it were delivered
    """

    def __init__(self, dataset, batch_size, drop_last, world, seed, epoch=0, start=0):
        self.dataset = dataset
        self.samples_per_batch = batch_size or 1
        self.drop_last = drop_last
        self.world = world
        self.seed = seed
        self.epoch = epoch
        self.start = start

    def rest(self, epoch, start, seed):
        return OwnOrder(
            self.dataset, self.samples_per_batch, self.drop_last, self.world, seed, epoch, start
        )

    def set_epoch(self, epoch):
        self.epoch = epoch

    @property
    def step(self):
        """Samples of a batch of every rank."""
        return self.samples_per_batch * (self.world or process_group())[1]

    def _parts(self):
        """(whole steps, positions of the rank's first batch, positions of its last, shorter one)"""
        rank, world_size = self.world or process_group()
        count, size = len(self.dataset), self.samples_per_batch
        steps, remainder = divmod(max(count - self.start, 0), self.step)
        first = self.start + rank * size
        if not remainder or self.drop_last:
            return steps, first, range(0)
        base, larger_parts = divmod(remainder, world_size)
        begin = count - remainder + rank * base + min(rank, larger_parts)
        part = range(begin, begin + base + (rank < larger_parts))
        repeated = (rank - remainder) % count
        return steps, first, part or range(repeated, repeated + 1)

    def __len__(self):
        steps, _, last = self._parts()
        return steps * self.samples_per_batch + len(last)

    def __iter__(self):
        order = range(len(self.dataset))
        if self.seed is not None:
            generator = torch.Generator().manual_seed((self.seed + self.epoch) % (1 << 63))
            # numpy's array: 8 bytes for a sample, where a list has an object for each.
            order = torch.randperm(len(order), generator=generator).numpy()
        steps, begin, last = self._parts()
        for _ in range(steps):
            yield from map(int, order[begin : begin + self.samples_per_batch])
            begin += self.step
        yield from map(int, order[last.start : last.stop])
