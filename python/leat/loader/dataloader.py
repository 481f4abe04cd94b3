"""leat.DataLoader: torch's DataLoader, whose batches C threads make where that is possible.

It is a subclass, because frameworks (Lightning, Accelerate, Hugging Face) check for a DataLoader,
read its attributes, or make another one from them. torch's constructor checks the arguments and
builds the samplers. When an iteration begins, engine_select.select() decides how it runs:

    an EngineSpec    engine_iterator.py: C threads write samples into batch slots
    reasons          torch_iterator.py: torch's own iterators, with the batches torch gives

plan() prints the decision and the reasons.
"""

import operator
import threading
from typing import TypeVar

import torch
from torch.utils.data import BatchSampler
from torch.utils.data import DataLoader as _TorchLoader

from leat.loader import engine_iterator, engine_select, torch_iterator
from leat.loader.bucket_sampler import BucketSampler
from leat.loader.index_batches import (
    OwnOrder,
    ResumableIndices,
    len_or_none,
    process_group,
)
from leat.loader.pass_state import LoaderPass, fresh_state
from leat.loader.plan import plan_of
from leat.loader.stats import LoaderCounters

ORDERS = ("full", "quasi", "window", "sequential", "torch")
POLICIES = ("raise", "skip", "replace")
SHARDS = (None, "auto")
STATE_VERSION = 2
_Sample = TypeVar("_Sample", covariant=True)


class _Shared:
    """A loader's state beside torch's attributes. It is copied and pickled with the loader, without
    the parts that run."""

    NOT_COPIED = ("current_pass", "idle_engine", "counters", "index_wrapper", "lock")

    def __init__(self, own_order, shuffled):
        self.own_order = own_order  # neither sampler nor batch_sampler was given
        self.shuffled = shuffled
        self.epoch = 0  # of the next pass
        self.resume = None  # a loaded state, until the next pass begins
        self.current_pass = None  # the last one that was begun
        self.idle_engine = None  # an engine that no iterator uses
        self.largest_batch = 0  # samples of the largest batch a batch_sampler gave
        self.counters = LoaderCounters()
        self.index_wrapper = None  # "engine" or "torch" while an iterator is made
        self.lock = threading.RLock()  # one iterator is made at a time

    def __getstate__(self):
        return {name: v for name, v in self.__dict__.items() if name not in self.NOT_COPIED}

    def __setstate__(self, state):
        self.__init__(True, False)
        self.__dict__.update(state)


class DataLoader(_TorchLoader[_Sample]):
    """torch.utils.data.DataLoader with its arguments and behaviour, and these arguments:

    device         where the tensors of a batch shall be; None: where they are made. To a CUDA GPU
                   ("cuda", "cuda:1") they are copied ahead of time
    device_memory  bytes of GPU memory for the data: tensors that fit are copied there once, and
                   batches are gathered there. None: batches only, up to a quarter of what is free
    order          'full', 'quasi', 'window', 'sequential', or 'torch' for the order of torch's own
                   sampler; None: 'full' with shuffle=True ('torch' when a generator is given), else
                   'sequential'. Ignored when a sampler or batch_sampler is given
    seed           of the order and of the augmentations. None: torch's RNG, so that
                   torch.manual_seed() repeats it; 0 where ranks share the data, which must agree.
                   Ignored when a sampler or batch_sampler is given
    on_error       for a sample that cannot be read: 'raise', 'skip' or 'replace'
    num_threads    a fixed number of C threads; None: one less than the cores this process may use,
                   then adapted
    memory_budget  bytes that all batch slots may take; None: a default that plan() prints
    autotune       whether the number of threads, and of batches made ahead, follows the training;
                   None: only when num_threads is not given
    shard          'auto': the ranks of torch.distributed share the data. None: every rank has all
                   data, as with torch. Ignored when a sampler or batch_sampler is given
    rank, world_size  this process's share of the data, instead of shard

    plan() says what runs in C, what does not, and why. stats() says what was waited for.
    state_dict() and load_state_dict() continue in the middle of an epoch. set_epoch() sets the
    number of the next epoch.
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
        num_threads=None,
        memory_budget=None,
        autotune=None,
        shard=None,
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
            raise ValueError(
                "seed has no effect on an order that torch draws: leave out seed, or order='torch' "
                "and generator"
            )
        self.on_error = _one_of("on_error", on_error, POLICIES)
        self.num_threads = _checked_int("num_threads", num_threads, 1, 1 << 12)
        self.memory_budget = _checked_int("memory_budget", memory_budget, 1, (1 << 63) - 1)
        self.autotune = num_threads is None if autotune is None else bool(autotune)
        self.world_size = _checked_int("world_size", world_size, 1, 1 << 30)
        max_rank = (1 << 30) if world_size is None else self.world_size - 1
        self.rank = _checked_int("rank", rank, 0, max_rank)
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size must be given together")
        self.shard = _one_of("shard", shard, SHARDS)
        if shard is not None and rank is not None:
            raise ValueError("give either shard, or rank and world_size")
        if iterable and (shard is not None or rank is not None):
            raise ValueError(
                "ranks cannot share a dataset without indices; this one is iterable: let the "
                "dataset itself leave out the samples of other ranks"
            )
        if self._leat_is_sharded():
            if shuffle and drawn_by_torch:
                raise ValueError(
                    "ranks share the data in an order that leat draws: leave out order='torch' and "
                    "generator, or pass a DistributedSampler as sampler"
                )
            self._share_data()

    def _share_data(self):
        """The samplers give this rank's part, so that they have the loader's length."""
        sampler = self._leat_own_order()
        # torch forbids to change them after the constructor.
        self.__dict__["sampler"] = sampler
        if self.batch_size is not None:
            batches = BatchSampler(sampler, self.batch_size, self.drop_last)
            self.__dict__["batch_sampler"] = batches

    def _leat_own_order(self):
        shuffled = self._leat_shared.shuffled
        world = (0, 1)
        if self._leat_is_sharded():
            world = None if self.world_size is None else (self.rank, self.world_size)
        seed = (self.seed or 0) if shuffled else None
        return OwnOrder(self.dataset, self.batch_size, self.drop_last, world, seed)

    def _leat_is_sharded(self):
        asked = self.shard is not None or self.world_size is not None
        return asked and self._leat_shared.own_order

    def __iter__(self):
        with self._leat_shared.lock:
            self._begin_pass()
            iterator = super().__iter__()
            # With persistent workers one iterator serves every pass.
            iterator._leat_pass = self._leat_shared.current_pass
        return iterator

    def _begin_pass(self):
        """A new epoch, or the rest of one whose state was loaded."""
        shared = self._leat_shared
        facts = self._leat_order_facts()
        if shared.resume is not None:
            _check_sampler_epoch(shared.resume, facts)
        state, shared.resume = shared.resume, None
        if state is None:
            state = fresh_state(shared.epoch)
        shared.epoch = state["epoch"] + 1
        if shared.current_pass is not None:
            shared.current_pass.release_engine()
        shared.current_pass = LoaderPass(state, shared.counters, facts, self.device)

    def _get_iterator(self):
        shared = self._leat_shared
        if shared.current_pass is None:  # not called by __iter__
            self._begin_pass()
        spec, reasons = engine_select.select(self)
        if spec is None:
            self._refuse_ineffective_arguments(reasons)
        shared.index_wrapper = "torch" if spec is None else "engine"
        try:
            if spec is not None:
                return engine_iterator._EngineDataLoaderIter(self, spec)
            iterator = torch_iterator.iterator_over(self)
        finally:
            shared.index_wrapper = None
        iterator._leat_pass = shared.current_pass
        return iterator

    def _refuse_ineffective_arguments(self, reasons):
        """Arguments that only the engine honours are errors when torch makes the batches."""
        seed = self.seed if self._dataset_kind else None
        for name, value, allowed in (
            ("on_error", self.on_error, ("raise",)),
            ("order", self.order, (None, "full", "sequential", "torch")),
            ("seed", seed, (None,)),
        ):
            if value not in allowed:
                raise ValueError(
                    f"{name}={value!r} needs a dataset that leat reads in C; "
                    f"this one runs through torch: {'; '.join(reasons)}"
                )
        if self._leat_shared.current_pass.engine_state is not None:
            raise ValueError(
                "the state was saved by a loader whose batches were made in C; "
                f"this one runs through torch: {'; '.join(reasons)}"
            )

    def _leat_world(self):
        """(rank, number of ranks) that share the data."""
        if not self._leat_is_sharded():
            return 0, 1
        return process_group() if self.world_size is None else (self.rank, self.world_size)

    def _leat_order_facts(self):
        """What the order depends on when Python draws it, for the state. `by` is the class of the
        sampler, 'leat' or 'iterable'."""
        facts = {
            "by": "iterable",
            "length": None,
            "indices": None,
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "seed": None,
            "epoch": None,
            "replicas": None,
        }
        if self._dataset_kind:
            return facts
        facts["length"] = len_or_none(self.dataset)
        if self._leat_orders():
            return {**facts, "by": "leat", "seed": self._leat_own_order().seed}
        sampler, batches = self.sampler, self.batch_sampler
        if type(batches) is BatchSampler:
            sampler = batches.sampler
            facts["batch_size"] = batches.batch_size
        elif batches is not None:
            sampler = batches
            facts["batch_size"] = getattr(batches, "batch_size", None)
        facts["by"] = type(sampler).__qualname__
        facts["indices"] = len_or_none(sampler)
        for name, attribute in (("epoch", "epoch"), ("replicas", "num_replicas")):
            value = getattr(sampler, attribute, None)
            facts[name] = value if type(value) is int else None
        return facts

    def _leat_orders(self):
        """Whether the order needs no random generator of torch's."""
        shared = self._leat_shared
        seeded = not shared.shuffled or (self.seed is not None and self.order != "torch")
        return self._leat_is_sharded() or (shared.own_order and seeded)

    @property
    def _index_sampler(self):
        sampler = super()._index_sampler
        shared = self.__dict__.get("_leat_shared")
        if shared is None or shared.index_wrapper is None or self._dataset_kind:
            return sampler
        in_batches = self.batch_sampler is not None
        if self._leat_orders() and not self._leat_is_sharded():
            sampler = self._leat_own_order()
            if in_batches:
                sampler = BatchSampler(sampler, self.batch_size, self.drop_last)
        as_tensors = shared.index_wrapper == "engine"
        draws = shared.shuffled and self.generator is None
        return ResumableIndices(sampler, shared, in_batches, draws, as_tensors)

    def set_epoch(self, epoch):
        """Sets the number of the next epoch, also in a sampler or dataset that has set_epoch."""
        epoch = _checked_int("epoch", epoch, 0, (1 << 32) - 1)
        shared = self._leat_shared
        shared.epoch = epoch
        if shared.resume is not None and shared.resume["epoch"] != epoch:
            shared.resume = None
        batches = self.batch_sampler
        called = []
        for part in (self.sampler, batches, getattr(batches, "sampler", None), self.dataset):
            part_set_epoch = getattr(part, "set_epoch", None)
            if callable(part_set_epoch) and not any(part is other for other in called):
                called.append(part)
                part_set_epoch(epoch)

    def state_dict(self):
        """The position in the pass that was begun last. Small, of the same size at any batch."""
        shared = self._leat_shared
        if shared.resume is not None:
            state = dict(shared.resume)
        elif shared.current_pass is not None:
            state = shared.current_pass.state()
        else:
            state = fresh_state(shared.epoch)
        return {"leat": STATE_VERSION, **state}

    def load_state_dict(self, state):
        """The next pass is the rest of the one the state was taken from."""
        if not isinstance(state, dict) or "leat" not in state:
            raise ValueError("this is not a state of leat.DataLoader: it has no key 'leat'")
        if state["leat"] != STATE_VERSION:
            raise ValueError(
                f"the state has version {state['leat']}; this leat reads version {STATE_VERSION}"
            )
        sampler = state["sampler"]
        if state["batches"] and (sampler is None) == isinstance(self.batch_sampler, BucketSampler):
            raise ValueError("the state was saved by a loader with another kind of batch_sampler")
        if state["batches"] and state["order"] is not None and sampler is None:
            self._check_order(state["order"])
        names = fresh_state(0)
        self._leat_shared.resume = {name: state[name] for name in names}

    def _check_order(self, saved):
        """Refuses a state whose order this loader cannot continue. Sets the sampler's epoch."""
        own = self._leat_order_facts()
        if saved["by"] != own["by"]:
            raise ValueError(
                f"the state was saved in the order of {saved['by']}, this loader has that of "
                f"{own['by']}: pass the same shuffle, seed and sampler as there"
            )
        names = {"length": "samples in the dataset"}
        if own["by"] == "iterable":
            # Which samples come in which batch depends on both.
            names.update(batch_size="samples in a batch", num_workers="workers")
        elif own["by"] != "leat":
            if self.batch_sampler is not None and type(self.batch_sampler) is not BatchSampler:
                names["batch_size"] = "samples in a batch of the batch_sampler"
            names.update(replicas="ranks in the sampler", indices="entries in the sampler")
        for name, text in names.items():
            if saved[name] != own[name]:
                raise ValueError(
                    f"the state was saved with {saved[name]} {text}, this loader has {own[name]}: "
                    "it can be continued only with the same number"
                )
        if saved["epoch"] is not None and own["epoch"] != saved["epoch"]:
            sampler = self.sampler if self.batch_sampler is None else self.batch_sampler
            for part in (sampler, getattr(sampler, "sampler", None)):
                if callable(getattr(part, "set_epoch", None)):
                    part.set_epoch(saved["epoch"])

    def _leat_runs_in_c(self):
        """For the hooks of `leat run` and for `leat bench`."""
        return engine_select.select(self)[0] is not None

    def plan(self):
        """Which parts run in C and which through torch, and why; print it."""
        return plan_of(self, *engine_select.select(self))

    def stats(self):
        """What was waited for and read since the loader was made; see leat.loader.stats."""
        return self._leat_shared.counters.stats()


def _check_sampler_epoch(state, facts):
    """load_state_dict() has set the sampler's epoch. The user may have set another one since."""
    saved = state["order"]
    if not state["batches"] or saved is None or state["sampler"] is not None:
        return
    if saved["epoch"] != facts["epoch"]:
        raise ValueError(
            f"the state was saved in epoch {saved['epoch']} of the sampler, whose set_epoch() was "
            f"called with {facts['epoch']} since: call it with the same epoch, or call the "
            "loader's set_epoch() to begin another epoch"
        )


def _one_of(name, value, known):
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
    return value


def _checked_order(order, shuffle, iterable, own_order):
    if order is None:
        return None
    _one_of("order", order, ORDERS)
    if iterable:
        raise ValueError(f"order={order!r} needs a dataset with indices; this one is iterable")
    # Ignored with a sampler: frameworks that insert a sampler of their own pass all other arguments
    # of the original loader.
    if own_order and bool(shuffle) != (order != "sequential"):
        raise ValueError(f"order={order!r} and shuffle={shuffle!r} contradict each other")
    return order


def _checked_int(name, value, least, most):
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer; got {value!r}") from None
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}; got {value}")
    return value
