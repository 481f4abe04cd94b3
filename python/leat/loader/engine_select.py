"""Decides whether the engine makes a loader's batches, and gives the reason if not.

The engine is chosen only when its batches equal torch's. So the questions are those of
default_collate: where do the samples lie, and what does it make of them. A dataset with code of the
user's, an unknown collate_fn, or a tensor that carries more than its values runs through torch, and
plan() gives the reason.

A loader's attributes may change after it was made (collate_fn, the tensors of a TensorDataset), so
the decision is made again whenever an iteration begins. It takes some microseconds.
"""

import numpy
import torch
from torch.utils.data import Subset, TensorDataset
from torch.utils.data import sampler as samplers
from torch.utils.data._utils import collate
from torch.utils.data.distributed import DistributedSampler

from leat import _engine, data
from leat.data.structured import overridden
from leat.loader import collate as leat_collate
from leat.loader.bucket_sampler import BucketSampler
from leat.loader.engine_spec import NAMES, EngineSpec, single_field, spec_of_tensors
from leat.loader.plan import given_order, name_of

ORDERS = {
    "sequential": _engine.ORDER_SEQUENTIAL,
    "full": _engine.ORDER_FULL,
    "quasi": _engine.ORDER_QUASI,
    "window": _engine.ORDER_WINDOW,
}
# Samplers whose order does not depend on what happens between two batches, so that indices may be
# drawn ahead of the consumer.
PREFETCHABLE = (
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


def select(loader):
    """(EngineSpec, ()) or (None, reasons)."""
    spec, reasons = _spec_without_order(loader)
    if spec is not None and spec.subset is not None and loader._leat_shared.own_order:
        if loader.order in ("quasi", "window"):
            reasons.append(f"order={loader.order!r} needs neighbours, which a Subset does not have")
    if reasons:
        return None, reasons
    _choose_order(loader, spec)
    return spec, ()


def can_read(loader):
    """Whether leat.DataLoader with the arguments of a torch DataLoader makes its batches in C."""
    return not _spec_without_order(loader)[1]


def _spec_without_order(loader):
    """(EngineSpec or None, reasons) of any torch DataLoader."""
    reasons = list(_reasons_of_loader(loader))
    dataset, subset = loader.dataset, None
    while type(dataset) is Subset:
        dataset, subset = dataset.dataset, _subset_indices(dataset.indices, subset)
    spec = _spec_of(dataset)
    if not isinstance(spec, EngineSpec):
        return None, [*reasons, spec]
    if subset is not None:
        if not isinstance(subset, torch.Tensor):
            reasons.append("the indices of the Subset are not integers")
        spec.subset = subset
        spec.text += f", {len(loader.dataset)} of them"
    reasons += _choose_layout(loader, spec)
    return spec, reasons


def _reasons_of_loader(loader):
    if loader._dataset_kind:
        yield "the dataset is iterable: it has no indices"
    known = loader.collate_fn is collate.default_collate or _layout_of(loader) is not None
    if not known and loader._auto_collation:
        yield (
            f"collate_fn is {name_of(loader.collate_fn)}: only default_collate, leat.Pad and "
            "leat.Concat are known"
        )
    if not loader._auto_collation:
        yield "batch_size=None asks for single samples, not for batches"
    if collate.default_collate_fn_map.get(torch.Tensor) is not collate.collate_tensor_fn:
        yield "default_collate was extended for tensors"
    if loader.timeout and not loader.num_workers:
        yield "timeout is given without workers: torch refuses that"


def _layout_of(loader):
    """The collate_fn if it is a leat.Pad or leat.Concat; a subclass may have code of the user's."""
    return loader.collate_fn if type(loader.collate_fn) in leat_collate.CLASSES else None


def _choose_layout(loader, spec):
    """Sets spec.layout. Yields why samples of different length cannot be collated in C."""
    spec.layout = layout = _layout_of(loader)
    variable = [f for f in spec.variable_fields if f not in spec.bytes_fields]
    if not variable:
        return
    if layout is None:
        yield "its samples differ in length: pass collate_fn=leat.Pad() or leat.Concat()"
    elif layout.fields is not None and not set(variable) <= set(_fields_of_layout(spec, layout)):
        yield f"{layout!r} leaves out fields whose samples differ in length"


def _fields_of_layout(spec, layout):
    """Numbers of the fields that the layout is for: build_batch names them."""
    numbers = range(len(spec.make_source().fields))
    batch = spec.build_batch([[b"0"] if f in spec.bytes_fields else f for f in numbers])
    if isinstance(batch, dict):
        return [f for name, f in batch.items() if layout.is_for(name) and f in numbers]
    if isinstance(batch, (list, tuple)):
        return [f for position, f in enumerate(batch) if layout.is_for(position) and f in numbers]
    return []


def _subset_indices(indices, outer):
    """The indices of a Subset, or those of them that an outer Subset takes; () if they are not
    integers."""
    try:
        tensor = torch.as_tensor(indices)
        if tensor.dim() != 1 or tensor.dtype != torch.int64:
            return ()
        return tensor if outer is None else tensor[outer]
    except Exception:
        return ()


# ---- Datasets: an EngineSpec, or the reason why not.


def _spec_of(dataset):
    kind = type(dataset)
    if isinstance(dataset, TensorDataset):
        return _spec_of_tensor_dataset(dataset)
    if isinstance(dataset, torch.Tensor):
        return spec_of_tensors([dataset], single_field, "tensor")
    if kind in (numpy.ndarray, numpy.memmap):
        return _spec_of_array(dataset)
    if kind in data.CLASSES:
        return dataset.engine_spec()
    if isinstance(dataset, data.CLASSES):
        return _reason_of_subclass(dataset)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return f"{kind.__qualname__} is an iterable dataset: Python code"
    return f"{kind.__qualname__} is a dataset with Python code of its own"


def _spec_of_tensor_dataset(dataset):
    own = overridden(dataset, TensorDataset)
    if own:
        name = type(dataset).__qualname__
        return f"{name} is a TensorDataset with its own {' and '.join(own)}"
    return spec_of_tensors(dataset.tensors, list, "TensorDataset")


def _reason_of_subclass(dataset):
    """A subclass of a class of leat.data may have any code of the user's."""
    base = next(kind for kind in type(dataset).__mro__ if kind in data.CLASSES)
    own = overridden(dataset, base)
    code = f"its own {' and '.join(own)}" if own else "Python code of its own"
    return f"{type(dataset).__qualname__} is a leat.data.{base.__name__} with {code}"


def _spec_of_array(array):
    if array.dtype.name not in NAMES or not array.dtype.isnative:
        return f"the array has the type {array.dtype}"
    if array.ndim == 1 and array.dtype == numpy.uint64:
        return "torch makes no tensor of a numpy.uint64 scalar"
    if any(stride < 0 for stride in array.strides[1:]):
        return "torch makes no tensor of an array with negative strides"
    if array.ndim == 0 or array.ndim > 16 or array.size == 0:
        return f"the array has the shape {array.shape}"
    address = array.__array_interface__["data"][0]
    dtype = getattr(_engine, "DTYPE_" + array.dtype.name)
    fields = ((None, dtype, address, array.shape, array.strides),)
    shape = "x".join(map(str, array.shape[1:]))
    text = f"array in memory: {array.dtype.name}[{shape}], {array.shape[0]} samples"
    key = ("memory", fields)
    return EngineSpec(key, lambda: _engine.source_memory(fields, array), single_field, text)


# ---- Order.


def _choose_order(loader, spec):
    shared = loader._leat_shared
    if not shared.own_order:
        spec.order_text = given_order(loader)
        spec.prefetch = loader.num_workers > 0 or _is_prefetchable(loader.batch_sampler)
        if not spec.prefetch:
            spec.order_text += ", asked for one batch at a time"
        return
    order = loader.order
    if order is None:
        order = "sequential" if not shared.shuffled else "torch" if loader.generator else "full"
    if order == "torch" or spec.subset is not None:
        spec.order_text = "torch's" if shared.shuffled else "sequential"
        return
    spec.order = ORDERS[order]
    spec.order_text = "sequential" if order == "sequential" else f"{order} shuffle"


def _is_prefetchable(batch_sampler):
    if type(batch_sampler) is samplers.BatchSampler:
        batch_sampler = batch_sampler.sampler
    return type(batch_sampler) in PREFETCHABLE
