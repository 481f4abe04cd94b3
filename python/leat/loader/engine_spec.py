"""What a dataset that can be read in C tells the loader about itself.

Each class of leat.data has a method lowered(), which gives a Lowered, or the reason why it cannot be
read in C as one sentence; loader/engine_select.py asks it, and knows torch's own datasets itself.
"""

import torch
from torch.utils import dlpack

from leat import _engine

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
DTYPES = {getattr(torch, name): getattr(_engine, "DTYPE_" + name) for name in NAMES}


class Lowered:
    """What the engine is to do.

    source()  makes the engine's source; `key` is equal as long as it would make the same one
    build     makes a batch of what the engine gives of each field, as default_collate would
    variable  numbers of the fields whose samples differ in length
    as_bytes  those of them whose samples are bytes, not tensors: default_collate leaves a list
    order     the engine's order, or None: the indices come from torch's samplers
    through   None, or the indices of a Subset as a tensor
    ahead     whether indices may be drawn ahead of the consumer
    layout    None, or the leat.Pad or leat.Concat that the engine does
    version   None, or something that changes when torch writes to the data: while it does not, a
              copy of the data is as good
    """

    def __init__(self, key, source, build, text, variable=(), as_bytes=()):
        self.key = key
        self.source = source
        self.build = build
        self.text = text
        self.variable = tuple(variable)
        self.as_bytes = tuple(as_bytes)
        self.order = None
        self.order_text = ""
        self.through = None
        self.ahead = True
        self.layout = None
        self.version = None


def only(leaves):
    return leaves[0]


def lowered_tensors(tensors, build, name):
    tensors = tuple(tensors)
    if not tensors:
        return "there are no tensors"
    fields = []
    for number, tensor in enumerate(tensors):
        reason = unfit(tensor)
        if reason:
            return f"tensor {number} {reason}" if len(tensors) > 1 else f"the tensor {reason}"
        size = tensor.element_size()
        strides = tuple(step * size for step in tensor.stride())
        fields.append((None, DTYPES[tensor.dtype], tensor.data_ptr(), tuple(tensor.shape), strides))
    if len({tensor.shape[0] for tensor in tensors}) > 1:
        return "the tensors have different lengths"
    fields = tuple(fields)
    key = ("memory", fields)
    text = f"{name} in memory: {shapes(tensors)}, {tensors[0].shape[0]} samples"
    found = Lowered(key, lambda: _engine.source_memory(fields, tensors), build, text)
    if not any(tensor.is_inference() for tensor in tensors):
        found.version = tuple(tensor._version for tensor in tensors)
    return found


def unfit(tensor):
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


def shapes(tensors):
    def one(tensor):
        shape = "x".join(map(str, tensor.shape[1:]))
        dtype = "struct" if getattr(tensor.dtype, "names", None) else str(tensor.dtype)
        return f"{dtype.replace('torch.', '')}[{shape}]"

    some = ", ".join(one(tensor) for tensor in tensors[:4])
    return some if len(tensors) <= 4 else f"{some} and {len(tensors) - 4} more"
