"""leat.BucketSampler: batches of samples of similar length, or of a budget of tokens.

The batches of an epoch are computed in C (src/load/buckets.h): the shuffled order is cut into
windows, each window is sorted by length and cut into batches, and the batches are shuffled. This is
a batch sampler for torch's DataLoader and for leat's: an iterable of lists of indices with a
length, set_epoch() and a state.
"""

import operator

import numpy
import torch
from torch.utils.data import Sampler, Subset

from leat import _engine

STATE_VERSION = 1


class BucketSampler(Sampler):
    """Batches of samples of similar length, so that little is padded.

    BucketSampler(dataset, batch_size=32)
    BucketSampler(lengths, max_tokens=8192)

    lengths      a list, tensor or array of the samples' lengths, or a dataset of leat.data that
                 knows them
    batch_size   samples of a batch
    max_tokens   tokens of a padded batch, at most; with batch_size both are limits
    window       samples of the shuffled order that are sorted together: more waste less padding,
                 fewer are closer to random; None: 8192, and at least 32 batches
    shuffle      False: windows follow the order of the data, and batches too
    seed         of the order, with the epoch; must be the same on all ranks
    drop_last    drop a batch that is not full, and batches that do not give one to every rank.
                 Otherwise the remainder is split among the ranks: all have the same number of
                 batches and every sample comes once, unless fewer samples than ranks are left
    pad_to_multiple_of   padded lengths are rounded up to a multiple of it, as in leat.Pad
    allow_long   a sample longer than max_tokens is a batch of its own; otherwise it is an error
    rank, world_size   whose batches; None: those of torch.distributed

    Each iteration is a new epoch. set_epoch() sets the number of the next one.
    """

    def __init__(
        self,
        lengths,
        batch_size=None,
        max_tokens=None,
        window=None,
        shuffle=True,
        seed=0,
        drop_last=False,
        pad_to_multiple_of=1,
        *,
        allow_long=False,
        rank=None,
        world_size=None,
    ):
        self.batch_size = _positive("batch_size", batch_size)
        self.max_tokens = _positive("max_tokens", max_tokens)
        if self.batch_size is None and self.max_tokens is None:
            raise ValueError("give batch_size or max_tokens")
        self.window = _positive("window", window)
        self.pad_to_multiple_of = _positive("pad_to_multiple_of", pad_to_multiple_of) or 1
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.allow_long = bool(allow_long)
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be between 0 and 2**64 - 1; got {seed}")
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size must be given together")
        self.world_size = _positive("world_size", world_size)
        self.rank = None if rank is None else operator.index(rank)
        if self.rank is not None and not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be between 0 and {self.world_size - 1}; got {rank}")
        self._lengths = _lengths_of(lengths)
        self.epoch = 0  # of the next pass
        self._resume = None  # a loaded state, until the next pass begins
        self._last_pass = None  # the one that was begun last
        self._cached_plan = None, None
        # Made now, so that bad lengths are reported now. The largest batch is about as large in
        # every epoch: leat.DataLoader makes its slots for it, and grows them when needed.
        self.largest_batch = self._plan(0).largest

    def _world(self):
        if self.world_size is not None:
            return self.rank, self.world_size
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def _plan(self, epoch, seed=None):
        """The batches of an epoch, for all ranks. The last plan is cached."""
        seed = self.seed if seed is None else seed
        key = epoch, seed, self.drop_last
        if self._cached_plan[0] != key:
            plan = _engine.BucketPlan(
                self._lengths.data_ptr(),
                len(self._lengths),
                self.batch_size or 0,
                self.max_tokens or 0,
                self.window or 0,
                self.pad_to_multiple_of,
                self.shuffle,
                self.drop_last,
                self.allow_long,
                seed,
                epoch,
            )
            self._cached_plan = key, plan
        return self._cached_plan[1]

    def begin(self, state=None):
        """Begins a pass: the next epoch, or the rest of the one the state is of. leat.DataLoader
        calls this and keeps the state itself."""
        state = state or self._resume
        self._resume = None
        if state is None:
            state = {"epoch": self.epoch, "done": 0}
        else:
            self._check_state(state)
            self.seed = state["seed"]
        self._last_pass = BucketPass(self, state["epoch"], state["done"])
        self.epoch = state["epoch"] + 1
        return self._last_pass

    def __iter__(self):
        return self.begin()

    def __len__(self):
        """Batches of this rank's next pass."""
        epoch, done = self.epoch, 0
        if self._resume is not None:
            epoch, done = self._resume["epoch"], self._resume["done"]
        return self._plan(epoch).steps(*self._world(), done, self.drop_last)

    def set_epoch(self, epoch):
        """Sets the number of the next epoch."""
        self.epoch = operator.index(epoch)
        if self._resume is not None and self._resume["epoch"] != self.epoch:
            self._resume = None

    def state_dict(self):
        """The position in the last pass, the same for all ranks: a few numbers. torch's DataLoader
        with workers draws batches ahead of the training; the state of leat.DataLoader counts the
        batches that the training received."""
        if self._resume is not None:
            return dict(self._resume)
        if self._last_pass is not None:
            return self._last_pass.state(self._last_pass.given, self._last_pass.ended)
        return _state(self.seed, self.epoch)

    def load_state_dict(self, state):
        """The next pass is the rest of the one the state was taken from, with any world size."""
        self._check_state(state)
        self._resume = dict(state)
        self.seed = state["seed"]
        self.epoch = state["epoch"]

    def _check_state(self, state):
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise ValueError(f"this is not a state of leat.BucketSampler, version {STATE_VERSION}")
        batches = self._plan(state["epoch"], state["seed"]).batches if state["done"] else 0
        if batches != state["batches"]:
            raise ValueError(
                f"the state is of an epoch of {state['batches']} batches, this one has {batches}: "
                "the lengths or the sampler's arguments are not the same"
            )

    def __getstate__(self):
        return {**self.__dict__, "_cached_plan": (None, None), "_last_pass": None}


def _state(seed, epoch, done=0, batches=0):
    """`done`: batches of all ranks that were consumed. At the epoch's beginning `batches` is 0."""
    return {
        "version": STATE_VERSION,
        "seed": seed,
        "epoch": epoch,
        "done": done,
        "batches": batches if done else 0,
    }


class BucketPass:
    """One pass over one rank's batches."""

    def __init__(self, sampler, epoch, done):
        self._seed = sampler.seed
        self._epoch = epoch
        self._plan = sampler._plan(epoch)
        self._start = (*sampler._world(), done)
        self._steps = self._plan.steps(*self._start, sampler.drop_last)
        self.given = 0
        self.ended = False

    def __iter__(self):
        return self

    def __len__(self):
        return self._steps - self.given

    def __next__(self):
        if self.given == self._steps:
            self.ended = True
            raise StopIteration
        batch = self._plan.part(*self._start, self.given)
        self.given += 1
        return batch

    def state(self, given, ended):
        """The state after `given` batches of this pass."""
        if ended:
            return _state(self._seed, self._epoch + 1)
        done = self._plan.done_after(*self._start, given)
        return _state(self._seed, self._epoch, done, self._plan.batches)


def _positive(name, value):
    if value is None:
        return None
    value = operator.index(value)
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value}")
    return value


def _lengths_of(given):
    """The lengths as an int64 tensor that the sampler owns."""
    if type(given) is Subset:
        return _lengths_of(given.dataset)[torch.as_tensor(given.indices)]
    lengths = getattr(given, "lengths", None)
    if callable(lengths):
        given = lengths()
    elif isinstance(given, torch.utils.data.Dataset):
        raise TypeError(
            f"{type(given).__qualname__} does not know the lengths of its samples: "
            "pass a list, a tensor or an array of them"
        )
    lengths = torch.as_tensor(numpy.asarray(given) if isinstance(given, (list, tuple)) else given)
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.is_complex():
        if len(lengths):
            raise TypeError("lengths must be integers in one dimension")
    return lengths.to("cpu", torch.int64, copy=True).contiguous()
