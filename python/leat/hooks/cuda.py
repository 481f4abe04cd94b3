"""Copies to the GPU, waits for it, and its memory.

Nothing here is installed before the script initialises CUDA: torch then calls the functions of its
lazy-call list. On a machine without CUDA no method is wrapped.
"""

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


def _make_copy(compiling):
    def make(original):
        def copy(self, *args, **kwargs):
            if compiling() or self.is_cuda or inside(FETCH):
                return original(self, *args, **kwargs)
            t0 = now()
            result = original(self, *args, **kwargs)
            if result.is_cuda:
                t1 = now()
                if process.reported.by_this_process:
                    record(H2D, 0, 0, result.numel() * result.element_size(), t0, t1)
            return result

        return copy

    return make


def _make_read(name, compiling):
    """Reads a value back, which waits for the GPU; nothing for a CPU tensor."""

    def make(original):
        sync = make_sync(name, compiling)(original)

        def read(self, *args, **kwargs):
            if self.is_cuda:
                return sync(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        return read

    return make


def _uuid(torch, device):
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return "" if uuid is None else "GPU-" + str(uuid)


class Memory:
    """Records the figures of the allocator of the current device, a few times per second."""

    def __init__(self, torch):
        self.torch = torch
        self.devices = {}

    def __call__(self):
        _record.due(now() + MEMORY_PERIOD_NS)
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
    copied = patch.patch(torch.Tensor, "to", _make_copy(compiling), "Tensor.to")
    copied |= patch.patch(torch.Tensor, "cuda", _make_copy(compiling), "Tensor.cuda")
    for name in ("item", "cpu", "tolist"):
        patch.patch(torch.Tensor, name, _make_read(name, compiling), "Tensor." + name)
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
