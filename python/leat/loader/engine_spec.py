"""EngineSpec: how the engine reads a dataset and what becomes of its batches.

Each class of leat.data has a method engine_spec(). It returns an EngineSpec, or one sentence that
gives the reason why the engine cannot read the dataset. engine_select.py calls it, and makes the spec of
torch's own datasets itself.
"""

import torch
from torch.utils import dlpack

from leat import _engine

# Types that have one name in the engine, torch and numpy.
NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()


def _has_dlpack(name):
    """Whether this torch takes tensors of the type by DLPack: older ones refuse bool and uint16."""
    try:
        dlpack.from_dlpack(dlpack.to_dlpack(torch.zeros(1, dtype=getattr(torch, name))))
        return True
    except Exception:
        return False


NAMES = [name for name in NAMES if _has_dlpack(name)]
DTYPES = {getattr(torch, name): getattr(_engine, "DTYPE_" + name) for name in NAMES}


class EngineSpec:
    """
    key              equal for two specs when source() would make the same source
    make_source()    makes the engine's source
    build_batch      makes a batch of the engine's fields, as default_collate would
    text             one line for plan()
    variable_fields  numbers of the fields whose samples differ in length
    bytes_fields     those of them whose samples are bytes: default_collate leaves a list
    order            the engine's order; None: torch's samplers give the indices
    order_text       the same for plan()
    subset           the indices of a Subset as a tensor, or None
    prefetch         whether indices may be drawn ahead of the consumer
    layout           the leat.Pad or leat.Concat that the engine applies, or None
    version          changes when torch writes to the data, so that a copy of the data can be
                     reused while it is equal; None: unknown
    """

    def __init__(self, key, make_source, build_batch, text, variable_fields=(), bytes_fields=()):
        self.key = key
        self.make_source = make_source
        self.build_batch = build_batch
        self.text = text
        self.variable_fields = tuple(variable_fields)
        self.bytes_fields = tuple(bytes_fields)
        self.order = None
        self.order_text = ""
        self.subset = None
        self.prefetch = True
        self.layout = None
        self.version = None


def single_field(fields):
    """build_batch of a dataset whose samples are one tensor."""
    return fields[0]


def spec_of_tensors(tensors, build_batch, name):
    tensors = tuple(tensors)
    if not tensors:
        return "there are no tensors"
    fields = []
    for number, tensor in enumerate(tensors):
        reason = why_not_plain(tensor)
        if reason:
            return f"tensor {number} {reason}" if len(tensors) > 1 else f"the tensor {reason}"
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
        fields.append((None, DTYPES[tensor.dtype], tensor.data_ptr(), tuple(tensor.shape), strides))
    if len({tensor.shape[0] for tensor in tensors}) > 1:
        return "the tensors have different lengths"
    fields = tuple(fields)
    text = f"{name} in memory: {describe_rows(tensors)}, {tensors[0].shape[0]} samples"
    spec = EngineSpec(
        ("memory", fields), lambda: _engine.source_memory(fields, tensors), build_batch, text
    )
    if not any(tensor.is_inference() for tensor in tensors):
        spec.version = tuple(tensor._version for tensor in tensors)
    return spec


def why_not_plain(tensor):
    """Why the rows of a tensor are more than their stored values; None if they are not."""
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
        return "is conjugated, negated or quantized"
    if tensor.dim() == 0 or tensor.dim() > 16:
        return f"has {tensor.dim()} dimensions"
    if tensor.numel() == 0:
        return "is empty"
    return None


def describe_rows(tensors):
    """ "float32[3x8], int64[]": type and shape of a row of each; the first four."""

    def one(tensor):
        shape = "x".join(map(str, tensor.shape[1:]))
        return f"{str(tensor.dtype).replace('torch.', '')}[{shape}]"

    shown = ", ".join(one(tensor) for tensor in tensors[:4])
    return shown if len(tensors) <= 4 else f"{shown} and {len(tensors) - 4} more"
