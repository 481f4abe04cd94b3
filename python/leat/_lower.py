"""What can be given to the engine, and why the rest cannot.

Only what gives the very batches torch would give is lowered, so the questions are those of
default_collate: where do the samples lie, and what does it make of them. A dataset with code of its
own, a collate_fn of one's own, a tensor that carries more than its values: those run through torch,
and plan() gives the reason.

What matters may change after a loader was made (collate_fn, the tensors of a TensorDataset), so it
is looked at anew whenever an iteration begins: some microseconds.
"""

import os

import numpy
import torch
from torch.utils import dlpack
from torch.utils.data import Subset, TensorDataset
from torch.utils.data import sampler as samplers
from torch.utils.data._utils import collate
from torch.utils.data.distributed import DistributedSampler

from leat import _core, data
from leat._loader_plan import Plan

# Types the engine, torch and numpy call by one name.
NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()


def _handed_over(name):
    """Whether this torch takes tensors of the type by DLPack: bools and unsigned ones came late."""
    try:
        dlpack.from_dlpack(dlpack.to_dlpack(torch.zeros(1, dtype=getattr(torch, name))))
        return True
    except Exception:
        return False


NAMES = [name for name in NAMES if _handed_over(name)]
DTYPES = {getattr(torch, name): getattr(_core, "DTYPE_" + name) for name in NAMES}
ORDERS = {
    "sequential": _core.ORDER_SEQUENTIAL,
    "full": _core.ORDER_FULL,
    "quasi": _core.ORDER_QUASI,
    "window": _core.ORDER_WINDOW,
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
)


class Lowered:
    """What the engine is to do.

    source()  makes the engine's source; `key` is equal as long as it would make the same one
    build     makes a batch of the tensors of its fields, as default_collate would
    order     the engine's order, or None: the indices come from torch's samplers
    through   None, or the indices of a Subset as a tensor
    ahead     whether indices may be drawn ahead of the consumer
    """

    def __init__(self, key, source, build, text):
        self.key = key
        self.source = source
        self.build = build
        self.text = text
        self.order = None
        self.order_text = ""
        self.through = None
        self.ahead = True


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
    if reasons:
        return None, reasons
    _choose_order(loader, found)
    return found, ()


def _about_the_loader(loader):
    if loader._dataset_kind:
        yield "the dataset is iterable: it has no indices to read by"
    if loader.collate_fn is not collate.default_collate and loader._auto_collation:
        yield f"collate_fn is {_name_of(loader.collate_fn)}: only default_collate is known"
    if not loader._auto_collation:
        yield "batch_size=None asks for single samples: there is nothing to put together"
    if collate.default_collate_fn_map.get(torch.Tensor) is not collate.collate_tensor_fn:
        yield "default_collate was extended for tensors"
    if loader.timeout and not loader.num_workers:
        yield "timeout is given without workers: torch refuses that"


def _name_of(function):
    return getattr(function, "__qualname__", type(function).__qualname__)


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
        return _tensors([dataset], _only, "tensor")
    if kind in (numpy.ndarray, numpy.memmap):
        return _array(dataset)
    if kind is data.Tensors:
        return _tensors(dataset.leaves, dataset.build_batch, "Tensors")
    if kind is data.Npy:
        return _npy(dataset)
    if kind is data.Tokens:
        return _tokens(dataset)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return f"{kind.__qualname__} is code of its own"
    return f"{kind.__qualname__} is a dataset with code of its own, which only Python can run"


def _only(leaves):
    return leaves[0]


def _tensor_dataset(dataset):
    kind = type(dataset)
    for name in ("__getitem__", "__len__", "__getitems__"):
        if getattr(kind, name, None) is not getattr(TensorDataset, name, None):
            return f"{kind.__qualname__} is a TensorDataset with a {name} of its own"
    return _tensors(dataset.tensors, list, "TensorDataset")


def _tensors(tensors, build, name):
    tensors = tuple(tensors)
    if not tensors:
        return "there are no tensors"
    fields = []
    for number, tensor in enumerate(tensors):
        reason = _unfit(tensor)
        if reason:
            return f"tensor {number} {reason}" if len(tensors) > 1 else f"the tensor {reason}"
        size = tensor.element_size()
        strides = tuple(step * size for step in tensor.stride())
        fields.append((None, DTYPES[tensor.dtype], tensor.data_ptr(), tuple(tensor.shape), strides))
    if len({tensor.shape[0] for tensor in tensors}) > 1:
        return "the tensors have different lengths"
    fields = tuple(fields)
    key = ("memory", fields)
    text = f"{name} in memory: {_shapes(tensors)}, {tensors[0].shape[0]} samples"
    return Lowered(key, lambda: _core.source_memory(fields, tensors), build, text)


def _unfit(tensor):
    """Why default_collate would make more of its rows than their values; None if it would not."""
    if type(tensor) is not torch.Tensor:
        return f"is a {type(tensor).__qualname__}"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}"
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}"
    if tensor.requires_grad:
        return "requires a gradient"
    if tensor.dtype not in DTYPES:
        return f"has the type {tensor.dtype}"
    if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return "has values that are not stored as they are"
    if tensor.dim() == 0 or tensor.dim() > 16:
        return f"has {tensor.dim()} dimensions"
    if tensor.numel() == 0:
        return "is empty"
    return None


def _shapes(tensors):
    def one(tensor):
        shape = "x".join(map(str, tensor.shape[1:]))
        dtype = "struct" if getattr(tensor.dtype, "names", None) else str(tensor.dtype)
        return f"{dtype.replace('torch.', '')}[{shape}]"

    some = ", ".join(one(tensor) for tensor in tensors[:4])
    return some if len(tensors) <= 4 else f"{some} and {len(tensors) - 4} more"


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
    dtype = getattr(_core, "DTYPE_" + array.dtype.name)
    fields = ((None, dtype, address, array.shape, array.strides),)
    shape = "x".join(map(str, array.shape[1:]))
    text = f"array in memory: {array.dtype.name}[{shape}], {array.shape[0]} samples"
    key = ("memory", fields)
    return Lowered(key, lambda: _core.source_memory(fields, array), _only, text)


def _npy(dataset):
    arrays = dataset._arrays
    for (path, _, _), array in zip(dataset.leaves, arrays):
        dtype = array.dtype
        kinds = [dtype] if not dtype.names else [dtype.fields[name][0].base for name in dtype.names]
        # The engine turns the bytes of plain items; those inside of structured ones are as they are.
        if any(k.name not in NAMES or (dtype.names and not k.isnative) for k in kinds):
            return f"{path} has the type {dtype}"
        if array.size == 0:
            return f"{path} is empty"
    parts = tuple((os.fsencode(path), offset, size) for path, offset, size in dataset.leaves)
    text = f"Npy, mapped: {_shapes(arrays)}, {len(dataset)} samples"
    key = ("npy", parts, id(arrays))
    return Lowered(key, lambda: _core.source_npy(parts), dataset.build_batch, text)


def _tokens(dataset):
    if not len(dataset):
        return "there is not one whole slice in the file"
    dtype = getattr(_core, "DTYPE_" + dataset.dtype)
    index = None if dataset.index is None else os.fsencode(dataset.index)
    path = os.fsencode(dataset.path)
    given = (path, index, dtype, dataset.offset, dataset.length, dataset.stride)
    text = f"Tokens, mapped: {dataset.dtype}, {len(dataset)} slices of {dataset.length} as int64"
    key = ("tokens", given, id(dataset._tokens))
    return Lowered(key, lambda: _core.source_tokens(*given), _only, text)


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


def plan(loader, found, reasons):
    title = f"{type(loader).__qualname__} over {type(loader.dataset).__qualname__}"
    world = loader._leat_world()
    part = f", rank {world[0]} of {world[1]}" if world[1] > 1 else ""
    device = "cpu" if loader.device is None else str(loader.device)
    if found is None:
        workers = f"{loader.num_workers} worker processes" if loader.num_workers else "none"
        order = "the given sampler's" if not loader._leat_shared.own_order else "torch's"
        rows = [
            ("source", type(loader.dataset).__qualname__, "torch"),
            ("order", order + part, "torch"),
            ("batch", f"collate_fn {_name_of(loader.collate_fn)}", "torch"),
            ("workers", workers, "torch"),
            ("device", device, "torch"),
        ]
        return Plan(title, rows, reasons)
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", "as given")
    tail = ", an incomplete last one left out" if loader.drop_last else ""
    threads = "one less than the cores" if loader.threads is None else str(loader.threads)
    budget = loader.memory_budget
    limit = "a quarter of the machine" if budget is None else f"{budget} bytes"
    rows = [
        ("source", found.text, "C"),
        ("order", found.order_text + part, "torch" if found.order is None else "C"),
        ("batch", f"{size}, stacked as default_collate does{tail}", "C"),
        ("threads", threads, "C"),
        ("memory", f"at most {limit}", "C"),
        ("device", device, "C" if device == "cpu" else "torch"),
    ]
    return Plan(title, rows)
