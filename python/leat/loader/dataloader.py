"""leat.DataLoader: torch's DataLoader, with the batches made by C threads where that is possible.

It is a subclass, so that whatever checks for a DataLoader, reads its attributes or makes another
from them (Lightning, Accelerate, Hugging Face) finds what it looks for. torch's constructor checks
the arguments and builds the samplers; what differs is decided when an iteration begins:

    engine_select.find(loader)    the dataset, the batching or the order can be given to the engine
        yes                _loader_engine: C threads write samples into batch slots
        no, because ...    _loader_torch: torch's own iterators, with the results torch gives

`plan()` says which of the two it is, and why.
"""

import operator
import threading
from typing import TypeVar

import torch
from torch.utils.data import DataLoader as _TorchLoader

from leat.loader import engine_iterator, engine_select, torch_iterator
from leat.loader.bucket_sampler import BucketSampler
from leat.loader.plan import Counts

ORDERS = ("full", "quasi", "window", "sequential", "torch")
POLICIES = ("raise", "skip", "replace")
STATE_VERSION = 1
_Sample = TypeVar("_Sample", covariant=True)


class _Shared:
    """What a loader keeps beside torch's attributes. It is copied and pickled with the loader;
    what runs is not."""

    def __init__(self, own_order, shuffled):
        self.own_order = own_order  # neither sampler nor batch_sampler was given
        self.shuffled = shuffled
        self.epoch = 0  # of the next pass
        self.resume = None  # a loaded state, until the next pass begins
        self.current = None  # the pass that was begun last
        self.resting = None  # an engine that no iterator uses
        self.largest = 0  # of the batches a batch_sampler gave
        self.counts = Counts()
        self.wrapping = None  # while an iterator is made: how it is to see the index sampler
        self.lock = threading.RLock()  # one iterator is made at a time

    def __getstate__(self):
        live = ("current", "resting", "counts", "wrapping", "lock")
        return {name: value for name, value in self.__dict__.items() if name not in live}

    def __setstate__(self, state):
        self.__init__(True, False)
        self.__dict__.update(state)


class DataLoader(_TorchLoader[_Sample]):
    """torch.utils.data.DataLoader with its arguments and behaviour, and these of its own:

    device         where the tensors of a batch are to be; None: where they are made. To a GPU
                   ("cuda", "cuda:1") they are copied ahead of time
    device_memory  bytes that may be used on the GPU; None: a quarter of what is free, for batches
                   only. Tensors that fit are copied there once, and batches are gathered there
    order          'full', 'quasi', 'window', 'sequential', or 'torch' for the very order torch's
                   sampler gives; None: 'full' with shuffle=True ('torch' when a generator was
                   given), else 'sequential'. A sampler or batch_sampler is followed as it is
    seed           of the order and of what is random; None: torch's random numbers decide with
                   one rank (torch.manual_seed() repeats it), 0 with several, which must agree
    on_error       'raise', 'skip' or 'replace': what becomes of a sample that cannot be read
    threads        C threads; None: one less than the cores this process may use, then as autotune
                   finds
    memory_budget  bytes the batch slots may take together; None: a default that plan() shows
    autotune       whether the number of threads, and of batches made ahead, follows what the
                   training needs; None: only when threads is not given
    rank, world_size  this process's part of the data; None: as torch.distributed has them

    plan() says what runs in C and what does not, and why; stats() what was waited for; state_dict()
    and load_state_dict() continue in the middle of an epoch; set_epoch() names the next one.
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        device=None,
        device_memory=None,
        order=None,
        seed=None,
        on_error="raise",
        threads=None,
        memory_budget=None,
        autotune=None,
        rank=None,
        world_size=None,
        **kwargs,
    ):
        own_order = sampler is None and batch_sampler is None
        iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        if shuffle is None and own_order and not iterable and order in ORDERS:
            shuffle = order != "sequential"
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            **kwargs,
        )
        self._leat_shared = _Shared(own_order, bool(shuffle))
        self.device = None if device is None else torch.device(device)
        self.device_memory = _checked_int("device_memory", device_memory, 1, (1 << 63) - 1)
        self.order = _checked_order(order, shuffle, iterable, own_order)
        self.seed = _checked_int("seed", seed, 0, (1 << 64) - 1)
        drawn_by_torch = order == "torch" or (order is None and generator is not None)
        if own_order and shuffle and drawn_by_torch and seed is not None:
            raise ValueError("the order is drawn by torch, so seed has no effect: give one of them")
        self.on_error = _one_of("on_error", on_error, POLICIES)
        self.threads = _checked_int("threads", threads, 1, 1 << 12)
        self.memory_budget = _checked_int("memory_budget", memory_budget, 1, (1 << 63) - 1)
        self.autotune = threads is None if autotune is None else bool(autotune)
        self.world_size = _checked_int("world_size", world_size, 1, 1 << 30)
        most = (1 << 30) if world_size is None else self.world_size - 1
        self.rank = _checked_int("rank", rank, 0, most)
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size are given together or not at all")

    def __iter__(self):
        with self._leat_shared.lock:
            self._begin()
            iterator = super().__iter__()
            # Persistent workers serve every pass with one iterator.
            iterator._leat_pass = self._leat_shared.current
        return iterator

    def _begin(self):
        """A pass begins: a fresh one, or the rest of one whose state was loaded."""
        shared = self._leat_shared
        state, shared.resume = shared.resume, None
        if state is None:
            state = torch_iterator.fresh_state(shared.epoch)
        shared.epoch = state["epoch"] + 1
        if shared.current is not None:
            shared.current.keep_state()
        shared.current = torch_iterator.Pass(state, shared.counts, self.device)

    def _get_iterator(self):
        shared = self._leat_shared
        if shared.current is None:  # called by something that is not __iter__
            self._begin()
        lowered, reasons = engine_select.find(self)
        if lowered is None:
            self._refuse_what_torch_cannot(reasons)
        shared.wrapping = "quick" if lowered is not None else "torch"
        try:
            if lowered is not None:
                return engine_iterator._EngineDataLoaderIter(self, lowered)
            iterator = torch_iterator.iterator_over(self)
        finally:
            shared.wrapping = None
        iterator._leat_pass = shared.current
        return iterator

    def _refuse_what_torch_cannot(self, reasons):
        """An argument that would be without effect is an error: nothing is ignored in silence."""
        seed = self.seed if self._dataset_kind else None
        for name, value, fine in (
            ("on_error", self.on_error, ("raise",)),
            ("order", self.order, (None, "full", "sequential", "torch")),
            ("seed", seed, (None,)),
        ):
            if value not in fine:
                raise ValueError(
                    f"{name}={value!r} needs a dataset that leat reads itself; "
                    f"this one runs through torch: {'; '.join(reasons)}"
                )
        if self._leat_shared.current.engine is not None:
            raise ValueError(
                "the state was saved by a loader that leat ran itself; "
                f"this one runs through torch: {'; '.join(reasons)}"
            )

    def _leat_world(self):
        """(rank, world size)."""
        if self.world_size is not None:
            return self.rank, self.world_size
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def _leat_batches(self):
        """The index batches where they are not what torch's samplers give: several ranks share the
        data, or a seed was given. None where they are."""
        shared = self.__dict__.get("_leat_shared")
        if shared is None or not shared.own_order or self._dataset_kind:
            return None
        world = self._leat_world()
        seeded = shared.shuffled and self.seed is not None
        if world[1] == 1 and not (seeded and self.order != "torch"):
            return None
        seed = (self.seed or 0) if shared.shuffled else None
        return torch_iterator.RankBatches(
            len(self.dataset), self.batch_size, self.drop_last, world, seed
        )

    @property
    def _index_sampler(self):
        sampler = super()._index_sampler
        shared = self.__dict__.get("_leat_shared")
        if shared is None or shared.wrapping is None or self._dataset_kind:
            return sampler
        sampler = self._leat_batches() or sampler
        return torch_iterator.Indices(sampler, shared, shared.wrapping == "quick")

    def __len__(self):
        batches = self._leat_batches()
        return super().__len__() if batches is None else len(batches)

    def set_epoch(self, epoch):
        """The next pass is that epoch. A sampler or dataset that has set_epoch is told too."""
        epoch = _checked_int("epoch", epoch, 0, (1 << 32) - 1)
        shared = self._leat_shared
        shared.epoch = epoch
        if shared.resume is not None and shared.resume["epoch"] != epoch:
            shared.resume = None
        batches = self.batch_sampler
        told = []
        for thing in (self.sampler, batches, getattr(batches, "sampler", None), self.dataset):
            tell = getattr(thing, "set_epoch", None)
            if callable(tell) and not any(thing is other for other in told):
                told.append(thing)
                tell(epoch)

    def state_dict(self):
        """Where the pass that was begun last stands: small, and of the same size at any batch."""
        shared = self._leat_shared
        if shared.resume is not None:
            state = dict(shared.resume)
        elif shared.current is not None:
            state = shared.current.state()
        else:
            state = torch_iterator.fresh_state(shared.epoch)
        return {"leat": STATE_VERSION, **state, "world_size": self._leat_world()[1]}

    def load_state_dict(self, state):
        """The next pass is the rest of the one the state was taken from."""
        if not isinstance(state, dict) or "leat" not in state:
            raise ValueError("this is not a state of leat.DataLoader")
        if state["leat"] != STATE_VERSION:
            raise ValueError(
                f"the state is of version {state['leat']}; this leat reads {STATE_VERSION}"
            )
        world_size = self._leat_world()[1]
        sampler = state.get("sampler")
        if state["batches"] and (sampler is None) == isinstance(self.batch_sampler, BucketSampler):
            raise ValueError("the state was saved by a loader with another kind of batch_sampler")
        told = state["engine"] or sampler  # what any number of ranks can take up
        if not told and state["batches"] and state["world_size"] != world_size:
            raise ValueError(
                f"the state is of {state['world_size']} ranks and its order was torch's: "
                f"it cannot be loaded with {world_size}"
            )
        names = ("epoch", "batches", "random", "engine", "sampler")
        self._leat_shared.resume = {name: state.get(name) for name in names}

    def _by_engine(self):
        return engine_select.find(self)[0] is not None

    def plan(self):
        """What will run, in C or through torch, and why; print it."""
        lowered, reasons = engine_select.find(self)
        return engine_select.plan(self, lowered, reasons)

    def stats(self):
        """What was waited for and what was read since the loader was made."""
        return self._leat_shared.counts.stats()


def _one_of(name, value, known):
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(map(repr, known))}; got {value!r}")
    return value


def _checked_order(order, shuffle, iterable, own_order):
    if order is None:
        return None
    _one_of("order", order, ORDERS)
    if iterable:
        raise ValueError(f"order={order!r} needs a dataset with indices; this one is iterable")
    # With a sampler the order is the sampler's, and this one rests: frameworks that put a sampler of
    # their own in a loader make the loader anew with all its other arguments.
    if own_order and bool(shuffle) != (order != "sequential"):
        raise ValueError(f"order={order!r} and shuffle={shuffle!r} contradict each other")
    return order


def _checked_int(name, value, least, most):
    if value is None:
        return None
    if isinstance(value, bool):
        raise TypeError(f"{name} is a whole number; got {value!r}")
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number; got {value!r}") from None
    if not least <= value <= most:
        raise ValueError(f"{name} lies between {least} and {most}; got {value}")
    return value
