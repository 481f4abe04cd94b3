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


class RandomState:
    """The state of all random generators that a loader may use, to be restored."""

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


class EndlessIndices:
    """Indices, or batches of them, from the user's sampler, epoch after epoch without end."""

    def __init__(self, source):
        self.source = source
        self.iterator = iter(())
        self.group = 0  # 0: single indices; else batches of this size
        self.open = True

    def __iter__(self):
        return self

    def __next__(self):
        if not self.open:
            raise StopIteration
        return [self._next_index() for _ in range(self.group)] if self.group else self._next_index()

    def _next_index(self):
        for _ in range(2):
            for index in self.iterator:
                return index
            self.iterator = iter(self.source)
        raise StopIteration  # an empty epoch

    def finish(self):
        self.open = False

    def begin(self):
        self.open = True


class CachedBatch:
    """A dataset without cost: copies of one batch, as collate made it."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        return copy(self.batch)


class EndlessEpochs:
    """The batches of all epochs of a loader, without end."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        empty = False
        while not empty:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch

    def chosen_settings(self):
        """(threads, batches ahead) that the loader chose."""
        figures = self.loader.stats()
        return figures.threads, figures.ahead


def copy(batch):
    return each(batch, lambda tensor: tensor.clone())


def _pinned(tensor):
    """In page-locked memory, if there is a GPU."""
    try:
        return tensor.pin_memory() if tensor.device.type == "cpu" else tensor
    except RuntimeError:
        return tensor


class LoaderVariants:
    """The user's loader, and loaders made from it with other settings."""

    def __init__(self, torch, loader):
        self.torch = torch
        self.loader = loader
        self.kind = torch.utils.data.DataLoader
        self.iterable = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        self.accelerator = bool(torch.cuda.is_available())  # whether the script uses it or not
        batches = getattr(loader, "batch_sampler", None)
        # With a batch size, torch made the batch sampler from the sampler.
        self.can_batch = loader.batch_size is not None
        self.auto = batches is not None
        if not self.iterable:
            self.indices = EndlessIndices(
                loader.sampler if self.can_batch or not self.auto else batches
            )
        self.kept = None
        self.kept_bytes = None
        self.on_device = None  # the kept batch, for the steps of the model
        self.set_method(device_copies.CopyMethod())

    def set_method(self, method):
        """How batches are brought to a device from now on."""
        self.method = method
        self.transfers = device_copies.Transfers(self.torch, method)
        self.on_device = None

    def own(self):
        """The order for a row with the user's own settings."""
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
            return EndlessEpochs(self.make_leat(order["batch_size"]))
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
                CachedBatch(copy(self.kept)),
                batch_size=None,
                sampler=EndlessIndices(range(1 << 40)),
                **more,
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
        """The leat.DataLoader that would replace the user's."""
        from leat.loader.dataloader import DataLoader

        loader = self.loader
        more = {"collate_fn": loader.collate_fn, "generator": loader.generator}
        more["device"] = self.method.device or getattr(loader, "device", None)
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

    def is_made_by_leat(self):
        """Whether leat makes the user's batches already."""
        return hasattr(self.loader, "_leat_runs_in_c") and self.loader._leat_runs_in_c()

    def leat_can_make(self):
        """Whether leat would make them. Only for torch's own class, which has no user code, and for
        a training that copies to a device: leat's batches arrive there without a copy."""
        if self.is_made_by_leat():
            return True
        plain = type(self.loader) is self.kind and self.auto and not self.iterable
        if self.method.device is None or not plain:
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
        """Brings the batch to the device, if there is one, so that pinning counts."""
        if self.method.device is not None:
            self.transfers.send(batch, order["pin_memory"])

    def count(self, batch, order):
        size = order["batch_size"] or self.loader.batch_size or 0
        return loaders.samples(batch, size) or size or 1

    def keep(self, batch):
        if self.kept is None:  # in CPU memory, where workers can copy it
            self.kept = each(batch, lambda t: t.cpu() if t.is_cuda else t.clone())
            self.kept_bytes = sum(t.numel() * t.element_size() for t in tensors(self.kept))

    def batch_bytes(self):
        return self.kept_bytes

    def cached(self, order):
        if self.kept is None:
            self.keep(next(self.kind.__iter__(self.loader)))
        if self.on_device is None:
            self.on_device = self.method.put(self.kept)
        batch = copy(self.on_device)
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
    """Ends the workers of an iterator. Returns how many had to be killed. After an error they are
    not waited for, as they may hang."""
    workers = list(getattr(iterator, "_workers", ()))
    if kill:
        _unregister_workers(iterator)
        _kill(workers)
        _keep_iterator(iterator)
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
    # Only this row used these workers.
    known = {worker.pid for worker in workers}
    left += [child for child in multiprocessing.active_children() if child.pid in known]
    return len(left)


_kept_iterators = []  # iterators that must not be deleted


def _keep_iterator(iterator):
    """Keeps an iterator from being deleted. torch raises an error when a worker dies, possibly
    while a queue's lock is held; using or deleting the queue would then wait forever."""
    if iterator is None:
        return
    _kept_iterators.append(iterator)
    iterator._shutdown = True
    for name in ("_workers_done_event", "_pin_memory_thread_done_event"):
        if hasattr(iterator, name):
            getattr(iterator, name).set()


def unfinished_iterator(problem):
    """The iterator during whose construction the exception was raised, or None."""
    trace = problem.__traceback__
    while trace is not None:
        made = trace.tb_frame.f_locals.get("self")
        if hasattr(made, "_workers") and hasattr(made, "_worker_pids_set"):
            return made
        trace = trace.tb_next
    return None


def worker_exit(iterator):
    """How a worker of the iterator ended; "" if all are alive. torch checks only every five seconds
    for a worker that died before it was registered."""
    for worker in getattr(iterator, "_workers", ()):
        status = worker.exitcode
        if status is not None:
            return (
                f"worker exited with status {status}"
                if status >= 0
                else (f"worker killed by signal {-status}")
            )
    return ""


def _unregister_workers(iterator):
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
