"""What can be given to the engine, and why the rest cannot.

Only what gives the very batches torch would give is lowered, so the questions are those of
default_collate: where do the samples lie, and what does it make of them. A dataset with code of its
own, a collate_fn of one's own, a tensor that carries more than its values: those run through torch,
and plan() gives the reason.

What matters may change after a loader was made (collate_fn, the tensors of a TensorDataset), so it
is looked at anew whenever an iteration begins: some microseconds.
"""

import numpy
import torch
from torch.utils.data import Subset, TensorDataset
from torch.utils.data import sampler as samplers
from torch.utils.data._utils import collate
from torch.utils.data.distributed import DistributedSampler

from leat import _engine, data
from leat.loader import collate as variable_collate
from leat.loader import engine_iterator
from leat.loader.bucket_sampler import BucketSampler
from leat.loader.engine_spec import NAMES, Lowered, lowered_tensors, only
from leat.loader.plan import Plan

ORDERS = {
    "sequential": _engine.ORDER_SEQUENTIAL,
    "full": _engine.ORDER_FULL,
    "quasi": _engine.ORDER_QUASI,
    "window": _engine.ORDER_WINDOW,
}
# Samplers whose order depends on nothing that happens between two batches: indices may be drawn
# ahead of the consumer.
FORESEEABLE = (
    list,
    tuple,
    range,
    samplers.SequentialSampler,
    samplers.RandomSampler,
    samplers.SubsetRandomSampler,
    samplers.WeightedRandomSampler,
    DistributedSampler,
    BucketSampler,
)


def find(loader):
    """(a Lowered, ()) or (None, reasons)."""
    reasons = list(_about_the_loader(loader))
    dataset, through = loader.dataset, None
    while type(dataset) is Subset:
        dataset, through = dataset.dataset, _through(dataset.indices, through)
    found = _about_the_dataset(dataset)
    if not isinstance(found, Lowered):
        return None, [*reasons, found]
    if through is not None:
        if not isinstance(through, torch.Tensor):
            reasons.append("the indices of the Subset are not plain numbers")
        if loader._leat_shared.own_order and loader.order in ("quasi", "window"):
            reasons.append("a Subset has no neighbours to read together")
        found.through = through
        found.text += f", {len(loader.dataset)} of them"
    reasons += _about_the_lengths(loader, found)
    if reasons:
        return None, reasons
    _choose_order(loader, found)
    return found, ()


def _about_the_loader(loader):
    if loader._dataset_kind:
        yield "the dataset is iterable: it has no indices to read by"
    known = loader.collate_fn is collate.default_collate or _layout_of(loader) is not None
    if not known and loader._auto_collation:
        yield (
            f"collate_fn is {_name_of(loader.collate_fn)}: only default_collate, leat.Pad and "
            "leat.Concat are known"
        )
    if not loader._auto_collation:
        yield "batch_size=None asks for single samples: there is nothing to put together"
    if collate.default_collate_fn_map.get(torch.Tensor) is not collate.collate_tensor_fn:
        yield "default_collate was extended for tensors"
    if loader.timeout and not loader.num_workers:
        yield "timeout is given without workers: torch refuses that"


def _name_of(function):
    return getattr(function, "__qualname__", type(function).__qualname__)


def _layout_of(loader):
    """The collate_fn where it is one that the engine has; a subclass may have code of its own."""
    return loader.collate_fn if type(loader.collate_fn) in variable_collate.CLASSES else None


def _about_the_lengths(loader, found):
    """Why samples of different length cannot be put together in C. Takes note of how they can."""
    found.layout = layout = _layout_of(loader)
    differ = [f for f in found.variable if f not in found.as_bytes]
    if not differ:
        return
    if layout is None:
        yield "its samples differ in length: give collate_fn=leat.Pad() or leat.Concat()"
    elif layout.fields is not None and not set(differ) <= set(_fields_chosen(found, layout)):
        yield f"{layout!r} leaves out fields whose samples differ in length"


def _fields_chosen(found, layout):
    """Numbers of the fields the layout is for, found by building a batch of them."""
    numbers = range(len(found.source().fields))
    batch = found.build([[b"0"] if f in found.as_bytes else f for f in numbers])
    if isinstance(batch, dict):
        return [f for name, f in batch.items() if layout.chosen(name) and f in numbers]
    if isinstance(batch, (list, tuple)):
        return [f for place, f in enumerate(batch) if layout.chosen(place) and f in numbers]
    return []


def _through(indices, outer):
    """The indices of a Subset, of which `outer` are taken; something else if they are not plain."""
    try:
        tensor = torch.as_tensor(indices)
        if tensor.dim() != 1 or tensor.dtype != torch.int64:
            return ()
        return tensor if outer is None else tensor[outer]
    except Exception:
        return ()


# ---- Datasets. Each function gives a Lowered, or the reason why not.


def _about_the_dataset(dataset):
    kind = type(dataset)
    if isinstance(dataset, TensorDataset):
        return _tensor_dataset(dataset)
    if isinstance(dataset, torch.Tensor):
        return lowered_tensors([dataset], only, "tensor")
    if kind in (numpy.ndarray, numpy.memmap):
        return _array(dataset)
    if kind in data.CLASSES:  # not of a subclass, which may have code of its own
        return dataset.lowered()
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return f"{kind.__qualname__} is code of its own"
    return f"{kind.__qualname__} is a dataset with code of its own, which only Python can run"


def _tensor_dataset(dataset):
    kind = type(dataset)
    for name in ("__getitem__", "__len__", "__getitems__"):
        if getattr(kind, name, None) is not getattr(TensorDataset, name, None):
            return f"{kind.__qualname__} is a TensorDataset with a {name} of its own"
    return lowered_tensors(dataset.tensors, list, "TensorDataset")


def _array(array):
    if array.dtype.name not in NAMES or not array.dtype.isnative:
        return f"the array has the type {array.dtype}"
    if array.ndim == 1 and array.dtype == numpy.uint64:
        return "torch makes no tensor of single uint64 of numpy"
    if any(step < 0 for step in array.strides[1:]):
        return "torch makes no tensor of an array with negative strides"
    if array.ndim == 0 or array.ndim > 16 or array.size == 0:
        return f"the array has the shape {array.shape}"
    address = array.__array_interface__["data"][0]
    dtype = getattr(_engine, "DTYPE_" + array.dtype.name)
    fields = ((None, dtype, address, array.shape, array.strides),)
    shape = "x".join(map(str, array.shape[1:]))
    text = f"array in memory: {array.dtype.name}[{shape}], {array.shape[0]} samples"
    key = ("memory", fields)
    return Lowered(key, lambda: _engine.source_memory(fields, array), only, text)


# ---- Order.


def _choose_order(loader, found):
    shared = loader._leat_shared
    if not shared.own_order:
        found.order_text = "the given sampler's"
        found.ahead = loader.num_workers > 0 or _foreseeable(loader.batch_sampler)
        if not found.ahead:
            found.order_text += ", asked for a batch at a time"
        return
    order = loader.order
    if order is None:
        order = "sequential" if not shared.shuffled else "torch" if loader.generator else "full"
    if order == "torch" or found.through is not None:
        found.order_text = "torch's" if shared.shuffled else "sequential"
        return
    found.order = ORDERS[order]
    found.order_text = "sequential" if order == "sequential" else f"{order} shuffle"


def _foreseeable(batches):
    if type(batches) is samplers.BatchSampler:
        batches = batches.sampler
    return type(batches) in FORESEEABLE


# ---- What is said of it.


def _threads_text(loader):
    now = loader._leat_shared.counts.pace()
    if now is not None:
        return f"{now[0]}, {now[1]}"
    first = "one less than the cores" if loader.threads is None else str(loader.threads)
    return f"{first}, then as many as the training needs" if loader.autotune else first


def _put_together(found):
    if found.layout is not None:
        return f"put together as {found.layout!r} does"
    if found.variable and set(found.variable) == set(found.as_bytes):
        return "stacked, bytes in lists, as default_collate does"
    return "stacked as default_collate does"


def _device_text(loader, found):
    """(what, where)."""
    device = loader.device
    if device is None or device.type == "cpu":
        return "cpu", "C"
    if device.type != "cuda":
        return str(device), "torch"
    if found is not None and engine_iterator.delivers(loader, found):
        budget = loader.device_memory
        limit = "a quarter of its free memory" if budget is None else f"{budget} bytes of it"
        how = "copied from page-locked slots as they fill"
        if engine_iterator.resides(loader, found):
            how = f"gathered there if the data fits, else {how}"
        return f"{device}: {how}, at most {limit}", "C"
    return f"{device}: moved from page-locked memory on a stream of its own", "torch"


def plan(loader, found, reasons):
    title = f"{type(loader).__qualname__} over {type(loader.dataset).__qualname__}"
    world = loader._leat_world()
    part = f", rank {world[0]} of {world[1]}" if world[1] > 1 else ""
    device = _device_text(loader, found)
    if found is None:
        workers = f"{loader.num_workers} worker processes" if loader.num_workers else "none"
        order = "the given sampler's" if not loader._leat_shared.own_order else "torch's"
        rows = [
            ("source", type(loader.dataset).__qualname__, "torch"),
            ("order", order + part, "torch"),
            ("batch", f"collate_fn {_name_of(loader.collate_fn)}", "torch"),
            ("workers", workers, "torch"),
            ("device", device[0], "torch"),
        ]
        return Plan(title, rows, reasons)
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None) or "as given"
    tail = ", an incomplete last one left out" if loader.drop_last else ""
    threads = _threads_text(loader)
    budget = loader.memory_budget
    limit = "a quarter of the memory" if budget is None else f"{budget} bytes"
    rows = [
        ("source", found.text, "C"),
        ("order", found.order_text + part, "torch" if found.order is None else "C"),
        ("decode", found.source().decode, "C"),
        ("batch", f"{size}, {_put_together(found)}{tail}", "C"),
        ("threads", threads, "C"),
        ("memory", f"at most {limit}", "C"),
        ("device", *device),
    ]
    return Plan(title, rows)
