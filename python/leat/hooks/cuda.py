"""Copies to the GPU, waits for it, and its memory.

Nothing here is installed before the script initialises CUDA: torch then calls the functions of its
lazy-call list. On a machine without CUDA no method is wrapped.

Methods are timed only when they are called on a plain tensor or a parameter. `torch.Tensor.to` itself
stays the original, with its identity: tensor subclasses compare functions with it.
"""

import types

from .. import _record
from ..profile import lines
from . import patch, process
from .distributed import make_sync

inside = _record.inside
now = _record.now_ns
record = _record.record
FETCH = _record.FETCH
H2D = _record.H2D
MEMORY = _record.MEMORY

MEMORY_PERIOD_NS = 200_000_000

# Of the allocator: memory of tensors, memory reserved on the device, and the reserved memory that
# is free but split between tensors.
FIGURES = (
    ("allocated_bytes", 0),
    ("reserved_bytes", _record.FLAG_RESERVED),
    ("inactive_split_bytes", _record.FLAG_SPLIT),
)


class _TensorMethod:
    """A method of torch.Tensor, timed for tensors of the types `plain`. The class and tensors of
    other types have the original."""

    def __init__(self, original, timed, plain):
        self.original = original
        self.timed = timed
        self.plain = plain

    def __get__(self, tensor, owner=None):
        if type(tensor) in self.plain:
            return types.MethodType(self.timed, tensor)
        return self.original.__get__(tensor, owner)


class _Tensors:
    """Reads properties of plain tensors. A TorchFunctionMode of the script does not see the
    reads."""

    def __init__(self, torch):
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.without_modes = torch._C.DisableTorchFunction
        # Before torch 2.1 or so, 0 or more modes.
        self.modes = getattr(torch._C, "_is_torch_function_mode_enabled", None) or getattr(
            torch._C, "_len_torch_function_stack", lambda: True
        )

    def on_gpu(self, tensor):
        if not self.modes():
            return tensor.is_cuda
        with self.without_modes():
            return tensor.is_cuda

    def bytes_on_gpu(self, value):
        """0 if it is not a plain tensor on a GPU."""
        if type(value) not in self.plain or not self.on_gpu(value):
            return 0
        with self.without_modes():
            return value.numel() * value.element_size()


def _make_copy(tensors, compiling):
    def make(original):
        def copy(self, *args, **kwargs):
            if compiling() or inside(FETCH) or tensors.on_gpu(self):
                return original(self, *args, **kwargs)
            t0 = now()
            result = original(self, *args, **kwargs)
            t1 = now()
            copied = tensors.bytes_on_gpu(result)
            if copied and process.reported.by_this_process:
                record(H2D, 0, 0, copied, t0, t1)
            return result

        return _TensorMethod(original, copy, tensors.plain)

    return make


def _make_read(tensors, name, compiling):
    """Reads a value back, which waits for the GPU; nothing for a CPU tensor."""

    def make(original):
        sync = make_sync(name, compiling)(original)

        def read(self, *args, **kwargs):
            if not compiling() and tensors.on_gpu(self):
                return sync(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        return _TensorMethod(original, read, tensors.plain)

    return make


def _uuid(torch, device):
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return "" if uuid is None else "GPU-" + str(uuid)


class Memory:
    """Records the figures of the allocator of the current device, a few times per second."""

    def __init__(self, torch):
        self.torch = torch
        self.devices = {}
        self.due_ns = 0

    def __call__(self):
        if now() < self.due_ns:
            return
        self.due_ns = now() + MEMORY_PERIOD_NS
        _record.report_call_sites()
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return
        device = cuda.current_device()
        if device not in self.devices:
            self.devices[device] = _uuid(self.torch, device)
            process.fact("devices", ",".join(filter(None, self.devices.values())))
        stats = cuda.memory_stats_as_nested_dict(device)
        t = now()  # one time, so one row
        for key, flag in FIGURES:
            value = stats.get(key, {}).get("all", {}).get("current", 0)
            record(MEMORY, flag, device, value, t, t)
        record(MEMORY, _record.FLAG_RETRIES, device, stats.get("num_alloc_retries", 0), t, t)


def install(torch, tick):
    if _record.has_probe() and not (
        lines.can_read_stacks() and _record.watch_call_sites(lines.describe)
    ):
        patch.missing("lines of CUDA")
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return

    def cuda_initialised():
        try:
            _install_now(torch, tick)
        except Exception:
            patch.missing("cuda")

    try:
        torch.cuda._lazy_call(cuda_initialised)
    except Exception:
        patch.missing("cuda")


def _install_now(torch, tick):
    if not tick.active or tick.memory is not None:
        return
    compiling = patch.compiling_test(torch)
    tensors = _Tensors(torch)
    copied = False
    for name in ("to", "cuda"):
        make = _make_copy(tensors, compiling)
        copied |= patch.patch(torch.Tensor, name, make, "Tensor." + name, wraps=False)
    for name in ("item", "cpu", "tolist"):
        make = _make_read(tensors, name, compiling)
        patch.patch(torch.Tensor, name, make, "Tensor." + name, wraps=False)
    cuda = torch.cuda
    synced = patch.patch(
        cuda, "synchronize", make_sync("cuda.synchronize", compiling), "cuda.synchronize"
    )
    for name in ("Stream", "Event"):
        make = make_sync(f"{name}.synchronize", compiling)
        point = f"cuda.{name}.synchronize"
        synced |= patch.patch(getattr(cuda, name, None), "synchronize", make, point)
    if copied:
        process.signals(_record.SIGNAL_H2D)
    if synced:
        process.signals(_record.SIGNAL_SYNC)
    tick.memory = Memory(torch)
    _record.due(0)
