"""leat.BucketSampler: batches of samples of like length, or of a budget of tokens.

The plan of an epoch is made in C (src/load/buckets.h says how): the shuffled order in windows, each
sorted by length and cut into batches, and these shuffled. Here it is a batch sampler, for torch's
DataLoader as for leat's: an iterable of lists of indices with a length, set_epoch() and a state.
"""

import operator

import numpy
import torch
from torch.utils.data import Sampler, Subset

from leat import _engine

STATE_VERSION = 1


class BucketSampler(Sampler):
    """Batches of samples of like length, so that padding wastes little.

    BucketSampler(dataset, batch_size=32)
    BucketSampler(lengths, max_tokens=8192)

    lengths      a dataset of leat.data that knows the lengths of its samples, or a list, tensor or
                 array of them
    batch_size   samples of a batch
    max_tokens   most tokens a batch may have when its samples are padded to the longest; with
                 batch_size as well, both are limits
    window       samples of the shuffled order that are sorted together: more of them waste less,
                 fewer are nearer to chance; None: 8192, and at least 32 batches
    shuffle      else the windows are of the data's own order, and batches come in theirs
    seed         of the order, with the epoch; every rank must have the same
    drop_last    leave out a batch that is not full, and those that do not give one to every rank.
                 Else what is left is split among the ranks: all have the same number of batches
                 and every sample comes once, unless fewer samples than ranks are left
    multiple     what the length of a padded batch is a multiple of, as with leat.Pad
    allow_long   a sample beyond max_tokens is a batch of its own; else it is an error
    rank, world_size   whose batches; None: as torch.distributed has them

    Each iteration is an epoch of its own; set_epoch() names the next one.
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
        multiple=1,
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
        self.multiple = _positive("multiple", multiple) or 1
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.allow_long = bool(allow_long)
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed lies between 0 and 2**64 - 1; got {seed}")
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size are given together or not at all")
        self.world_size = _positive("world_size", world_size)
        self.rank = None if rank is None else operator.index(rank)
        if self.rank is not None and not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank lies between 0 and {self.world_size - 1}; got {rank}")
        self._lengths = _lengths_of(lengths)
        self.epoch = 0  # of the next pass
        self._resume = None  # a loaded state, until the next pass begins
        self._pass = None  # the one that was begun last
        self._planned = None, None
        # Whatever is wrong with the lengths is said now. Batches have about as many samples at most
        # in every epoch: slots are made for so many, and grow where that was too few.
        self.largest = self._plan(0).largest

    def _world(self):
        if self.world_size is not None:
            return self.rank, self.world_size
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def _plan(self, epoch, seed=None):
        """Of an epoch; the last one made is kept."""
        seed = self.seed if seed is None else seed
        key = epoch, seed, self.drop_last
        if self._planned[0] != key:
            plan = _engine.BucketPlan(
                self._lengths.data_ptr(),
                len(self._lengths),
                self.batch_size or 0,
                self.max_tokens or 0,
                self.window or 0,
                self.multiple,
                self.shuffle,
                self.drop_last,
                self.allow_long,
                seed,
                epoch,
            )
            self._planned = key, plan
        return self._planned[1]

    def begin(self, state=None):
        """A pass: the next epoch, or the rest of the one the state is of. leat.DataLoader calls
        this, and keeps the state itself."""
        state = state or self._resume
        self._resume = None
        if state is None:
            state = {"epoch": self.epoch, "done": 0}
        else:
            self._check_state(state)
            self.seed = state["seed"]
        self._pass = Pass(self, state["epoch"], state["done"])
        self.epoch = state["epoch"] + 1
        return self._pass

    def __iter__(self):
        return self.begin()

    def __len__(self):
        """Of this rank's next pass."""
        epoch, done = self.epoch, 0
        if self._resume is not None:
            epoch, done = self._resume["epoch"], self._resume["done"]
        return self._plan(epoch).steps(*self._world(), done, self.drop_last)

    def set_epoch(self, epoch):
        """The next pass is that epoch."""
        self.epoch = operator.index(epoch)
        if self._resume is not None and self._resume["epoch"] != self.epoch:
            self._resume = None

    def state_dict(self):
        """Where the pass that was begun last stands, for all ranks: a few numbers. A loader with
        workers draws batches ahead of the training; leat.DataLoader's own state knows better."""
        if self._resume is not None:
            return dict(self._resume)
        if self._pass is not None:
            return self._pass.state(self._pass.given, self._pass.ended)
        return _state(self.seed, self.epoch)

    def load_state_dict(self, state):
        """The next pass is the rest of the one the state was taken from, with any world size."""
        self._check_state(state)
        self._resume = dict(state)
        self.seed = state["seed"]
        self.epoch = state["epoch"]

    def _check_state(self, state):
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise ValueError("this is not a state of this leat's BucketSampler")
        batches = self._plan(state["epoch"], state["seed"]).batches if state["done"] else 0
        if batches != state["batches"]:
            raise ValueError(
                f"the state is of an epoch of {state['batches']} batches, this one has {batches}: "
                "the samples, or what the batches are cut by, are not the same"
            )

    def __getstate__(self):  # a plan is not pickled, nor what runs
        live = {"_planned": (None, None), "_pass": None}
        return {**self.__dict__, **live}


def _state(seed, epoch, done=0, batches=0):
    """`done` of all `batches` of the epoch; at its beginning both are 0."""
    return {
        "version": STATE_VERSION,
        "seed": seed,
        "epoch": epoch,
        "done": done,
        "batches": batches if done else 0,
    }


class Pass:
    """One pass over one rank's batches."""

    def __init__(self, sampler, epoch, done):
        self._seed = sampler.seed
        self._epoch = epoch
        self._plan = sampler._plan(epoch)
        self._from = (*sampler._world(), done)
        self._steps = self._plan.steps(*self._from, sampler.drop_last)
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
        batch = self._plan.part(*self._from, self.given)
        self.given += 1
        return batch

    def state(self, given, ended):
        """After so many of its batches; once it has ended, at the beginning of the next epoch."""
        if ended:
            return _state(self._seed, self._epoch + 1)
        done = self._plan.done_after(*self._from, given)
        return _state(self._seed, self._epoch, done, self._plan.batches)


def _positive(name, value):
    if value is None:
        return None
    value = operator.index(value)
    if value < 1:
        raise ValueError(f"{name} is at least 1; got {value}")
    return value


def _lengths_of(thing):
    """An int64 tensor of the sampler's own."""
    if type(thing) is Subset:
        return _lengths_of(thing.dataset)[torch.as_tensor(thing.indices)]
    lengths = getattr(thing, "lengths", None)
    if callable(lengths):
        thing = lengths()
    elif isinstance(thing, torch.utils.data.Dataset):
        raise TypeError(
            f"{type(thing).__qualname__} does not know the lengths of its samples: "
            "give them as a list, a tensor or an array"
        )
    lengths = torch.as_tensor(numpy.asarray(thing) if isinstance(thing, (list, tuple)) else thing)
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.is_complex():
        if len(lengths):
            raise TypeError("lengths are whole numbers in one dimension")
    return lengths.to("cpu", torch.int64, copy=True).contiguous()
