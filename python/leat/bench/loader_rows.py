"""Loaders made from the user's own, with other settings."""

import multiprocessing
import os
import signal
import sys
import time

from leat.bench import device_copies
from leat.bench.device_copies import each, tensors
from leat.hooks import loaders

_GRACE_S = 2.0


class Random:
    """The state of all generators a loader may draw from, to be given back."""

    def __init__(self, torch, loader):
        import random

        self.torch = torch
        self.states = [(random.setstate, random.getstate())]
        self.states.append((torch.random.set_rng_state, torch.random.get_rng_state()))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            self.states.append((numpy.random.set_state, numpy.random.get_state()))
        sampler = getattr(loader, "sampler", None)
        for generator in (loader.generator, getattr(sampler, "generator", None)):
            if generator is not None:
                self.states.append((generator.set_state, generator.get_state()))

    def restore(self):
        for put, state in self.states:
            try:
                put(state)
            except Exception:
                pass


class Stream:
    """Indices (or batches of them) from the user's sampler, epoch after epoch without an end."""

    def __init__(self, source):
        self.source = source
        self.iterator = iter(())
        self.group = 0  # 0: as they come; else so many together
        self.open = True

    def __iter__(self):
        return self

    def __next__(self):
        if not self.open:
            raise StopIteration
        return [self.take() for _ in range(self.group)] if self.group else self.take()

    def take(self):
        for _ in range(2):
            for index in self.iterator:
                return index
            self.iterator = iter(self.source)
        raise StopIteration  # an epoch without anything in it

    def finish(self):
        self.open = False

    def begin(self):
        self.open = True


class Cached:
    """A dataset that costs nothing: a fresh copy of one batch, as collate would have made it."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return copy(self.batch)


class Passes:
    """A loader's epochs, one after the other without an end, as a training asks for them."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        empty = False
        while not empty:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch

    def pace(self):
        """(threads, batches ahead) that the loader found for itself."""
        figures = self.loader.stats()
        return figures.threads, figures.ahead


def copy(batch):
    return each(batch, lambda tensor: tensor.clone())


def _pinned(tensor):
    """In page-locked memory, where there is some."""
    try:
        return tensor.pin_memory() if tensor.device.type == "cpu" else tensor
    except RuntimeError:
        return tensor


class Copies:
    """The user's loader, and what is made from it."""

    def __init__(self, torch, loader):
        self.torch = torch
        self.loader = loader
        self.kind = torch.utils.data.DataLoader
        self.iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        self.accelerator = bool(torch.cuda.is_available())  # there is one; see `way` for its use
        batches = getattr(loader, "batch_sampler", None)
        # A batch size of its own means that torch made the batch sampler from the sampler.
        self.can_batch = loader.batch_size is not None
        self.auto = batches is not None
        if not self.iterable:
            self.indices = Stream(loader.sampler if self.can_batch or not self.auto else batches)
        self.kept = None
        self.kept_bytes = None
        self.there = None  # what was kept, where the model's steps are to find it
        self.go(device_copies.Way())

    def go(self, way):
        """From now on, batches are brought to a device that way."""
        self.way = way
        self.lane = device_copies.Lane(self.torch, way)
        self.there = None

    def own(self):
        """The order that asks for the user's own settings."""
        loader = self.loader
        return {
            "num_workers": loader.num_workers,
            "prefetch_factor": loader.prefetch_factor,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": False,
            "batch_size": 0,
            "cached": False,
            "leat": False,
        }

    def make(self, order):
        """A DataLoader with the settings of an order."""
        if order["leat"]:
            return Passes(self.make_leat(order["batch_size"]))
        workers = order["num_workers"]
        more = {"num_workers": workers, "pin_memory": order["pin_memory"] and self.accelerator}
        if workers:
            more["prefetch_factor"] = order["prefetch_factor"] or None
            more["persistent_workers"] = order["persistent_workers"]
            more["multiprocessing_context"] = self.loader.multiprocessing_context
            more["timeout"] = self.loader.timeout
        more["worker_init_fn"] = self.loader.worker_init_fn
        if order["cached"]:
            return self.kind(
                Cached(copy(self.kept)), batch_size=None, sampler=Stream(range(1 << 40)), **more
            )
        for name in ("generator", "pin_memory_device", "in_order"):
            if getattr(self.loader, name, None) not in (None, ""):
                more[name] = getattr(self.loader, name)
        more["collate_fn"] = self.loader.collate_fn
        size = order["batch_size"] or self.loader.batch_size
        if self.iterable:
            more["batch_size"] = size if self.can_batch else None
            more["drop_last"] = bool(self.loader.drop_last) if self.can_batch else False
            return self.kind(self.loader.dataset, **more)
        self.indices.begin()
        self.indices.group = size if self.can_batch else 0
        if self.auto:
            more["batch_sampler"] = self.indices
        else:
            more.update(batch_size=None, sampler=self.indices)
        return self.kind(self.loader.dataset, **more)

    def make_leat(self, batch_size=0):
        """The leat.DataLoader that would stand in the user's place."""
        from leat.loader.dataloader import DataLoader

        loader = self.loader
        more = {"collate_fn": loader.collate_fn, "generator": loader.generator}
        more["device"] = self.way.device or getattr(loader, "device", None)
        if not self.can_batch:
            return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **more)
        more["batch_size"] = batch_size or loader.batch_size
        more["drop_last"] = loader.drop_last
        samplers = self.torch.utils.data
        sampler = loader.sampler
        if type(sampler) is samplers.RandomSampler and _is_all(sampler):
            more["shuffle"] = True
        elif type(sampler) is not samplers.SequentialSampler:
            more["sampler"] = sampler
        return DataLoader(loader.dataset, **more)

    def is_leat(self):
        """Whether leat already makes the user's batches."""
        return hasattr(self.loader, "_leat_runs_in_c") and self.loader._leat_runs_in_c()

    def can_leat(self):
        """Whether leat would make them: for a training that copies to a device, where its batches
        arrive without one. Only of torch's own class, which has no code of the user's."""
        if self.is_leat():
            return True
        plain = type(self.loader) is self.kind and self.auto and not self.iterable
        if self.way.device is None or not plain:
            return False
        try:
            return self.make_leat()._leat_runs_in_c()
        except Exception:
            return False

    def stream_of(self, loader):
        return None if self.iterable else self.indices

    def samples(self):
        """Functions that each make one sample, in this process."""
        dataset = self.loader.dataset
        if self.iterable:
            iterator = iter(dataset)
            while True:
                yield lambda: next(iterator)
        group, self.indices.group = self.indices.group, 0
        try:
            for index in self.indices:
                for i in index if isinstance(index, (list, tuple)) else [index]:
                    yield lambda i=i: dataset[i]
        finally:
            self.indices.group = group

    # ---- batches -----------------------------------------------------------------------------

    def use(self, batch, order):
        """With a device a batch is only there when it is on it: that is what pinning is for."""
        if self.way.device is not None:
            self.lane.send(batch, order["pin_memory"])

    def count(self, batch, order):
        size = order["batch_size"] or self.loader.batch_size or 0
        return loaders.samples(batch, size) or size or 1

    def keep(self, batch):
        if self.kept is None:  # where workers can copy it, wherever it came from
            self.kept = each(batch, lambda t: t.cpu() if t.is_cuda else t.clone())
            self.kept_bytes = sum(t.numel() * t.element_size() for t in tensors(self.kept))

    def batch_bytes(self):
        return self.kept_bytes

    def cached(self, order):
        if self.kept is None:
            self.keep(next(self.kind.__iter__(self.loader)))
        if self.there is None:
            self.there = self.way.put(self.kept)
        batch = copy(self.there)
        if order.get("pin_memory") and self.accelerator:
            batch = each(batch, _pinned)
        return batch

    def cached_count(self):
        return self.count(self.kept, {"batch_size": 0}) if self.kept is not None else None


def _is_all(sampler):
    """Whether a random sampler gives every sample once."""
    return not sampler.replacement and sampler.num_samples == len(sampler.data_source)


# ---- the end of a row ----------------------------------------------------------------------------


def shut_down(iterator, kill):
    """Ends the workers of an iterator, and says how many had to be killed. After an error they are
    not waited for: one that hangs would be waited for in vain."""
    workers = list(getattr(iterator, "_workers", ()))
    if kill:
        _forget(iterator)
        _kill(workers)
        _abandon(iterator)
    try:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
    except BaseException:
        pass
    end = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.join(max(0, end - time.monotonic()))
    left = [worker for worker in workers if worker.is_alive()]
    _kill(left)
    # Nobody knows these workers but the row that is over.
    known = {worker.pid for worker in workers}
    left += [child for child in multiprocessing.active_children() if child.pid in known]
    return len(left)


_abandoned = []  # iterators that must not be taken apart


def _abandon(iterator):
    """Leaves an iterator as it is. The exception that torch raises when a worker dies may come while
    a queue's lock is being taken; whoever then talks to the queue, or lets go of it, waits for ever."""
    if iterator is None:
        return
    _abandoned.append(iterator)
    iterator._shutdown = True
    for name in ("_workers_done_event", "_pin_memory_thread_done_event"):
        if hasattr(iterator, name):
            getattr(iterator, name).set()


def half_made(problem):
    """The iterator in whose making the exception was raised; None if it was elsewhere."""
    trace = problem.__traceback__
    while trace is not None:
        made = trace.tb_frame.f_locals.get("self")
        if hasattr(made, "_workers") and hasattr(made, "_worker_pids_set"):
            return made
        trace = trace.tb_next
    return None


def how_died(iterator):
    """Of a worker that is dead while it was waited for, how it died; "" if none is. Torch itself
    only looks every five seconds at one that died before it was registered."""
    for worker in getattr(iterator, "_workers", ()):
        status = worker.exitcode
        if status is not None:
            return (
                f"worker exited with status {status}"
                if status >= 0
                else (f"worker killed by signal {-status}")
            )
    return ""


def _forget(iterator):
    """Torch raises an error in this thread when a worker that it knows is killed."""
    try:
        from torch.utils.data._utils import signal_handling

        if iterator._worker_pids_set:
            signal_handling._remove_worker_pids(id(iterator))
            iterator._worker_pids_set = False
    except Exception:
        pass


def _kill(workers):
    for worker in workers:
        try:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join(_GRACE_S)
        except Exception:
            pass
