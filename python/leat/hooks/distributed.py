"""Blocked on others: collectives, other threads of the process, and who this rank is.

DistributedDataParallel reduces gradients from C++ inside the backward, and waits for the other ranks
in a callback that autograd calls at the end of it. A callback of leat's, which is called before that
one, tells when this rank's own gradients were there. It is asked for when the gradient of the model's
output is: that is inside of the backward, and before any parameter has its gradient. The collectives
that a script calls itself are seen as calls.
"""

import os
import sys
import threading

from leat import _record
from leat.hooks import patch, process

begin = _record.begin
now = _record.now_ns
record = _record.record
collective = _record.collective
end = _record.end
inside = _record.inside
waits = _record.waits
ERROR = _record.FLAG_ERROR
FETCH = _record.FETCH
SYNC = _record.SYNC
WAIT = _record.WAIT

# A wait below this is the price of taking a lock, not waiting.
WAIT_FLOOR_NS = 20_000

COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "gather",
    "scatter",
    "barrier",
    "monitored_barrier",
    "all_to_all",
    "all_to_all_single",
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
    "send",
    "recv",
)


def make_sync(name, compiling, mark=lambda begins: None):
    """A call that may block: a SYNC span, the outermost one only. `mark` is told of it."""

    def make(original):
        def sync(*args, **kwargs):
            if compiling() or inside(FETCH) or not begin(SYNC):
                return original(*args, **kwargs)
            number = 0
            flags = ERROR
            try:
                mark(True)
                number = process.name_id(name)
                result = original(*args, **kwargs)
                flags = 0
                return result
            finally:
                end(SYNC, flags, number, 0)
                mark(False)

        return sync

    return make


MOST_LOOKED_AT = 100  # values of an output: a tensor is among the first


def _first_with_gradient(torch, output):
    """The first tensor of a model's output that will be given a gradient; None: there is none."""
    waiting = [output]
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            break
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                return value
        elif isinstance(value, dict):
            waiting.extend(reversed(list(value.values())[:MOST_LOOKED_AT]))
        elif isinstance(value, (list, tuple)):
            waiting.extend(reversed(value[:MOST_LOOKED_AT]))
    return None


def make_parallel_forward(torch, compiling):
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def gradient_comes(gradient):
        try:
            queue_callback(_record.reduces)
        except Exception:  # the user's backward goes on
            patch.missing("DistributedDataParallel: callback")

    # Who saves an output is not warned of a hook that is not theirs.
    gradient_comes.__torch_unserializable__ = True

    def make(original):
        def _post_forward(self, *args, **kwargs):
            output = original(self, *args, **kwargs)
            if not compiling():
                try:
                    tensor = _first_with_gradient(torch, output)
                    if tensor is not None:
                        tensor.register_hook(gradient_comes)
                except Exception:
                    patch.missing("DistributedDataParallel: output")
            return output

        return _post_forward

    return make


def _local_rank():
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"):
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):
            pass
    return -1


def _make_init(original):
    def init_process_group(*args, **kwargs):
        result = original(*args, **kwargs)
        try:
            dist = sys.modules["torch.distributed"]
            if dist.is_initialized():
                process.rank(dist.get_rank(), _local_rank(), dist.get_world_size())
                process.signals(_record.SIGNAL_SYNC)
        except Exception:
            pass
        return result

    return init_process_group


def _make_wait(original):
    def wait(self, timeout=None):
        if not waits():
            return original(self, timeout)
        t0 = now()
        try:
            return original(self, timeout)
        finally:
            t1 = now()
            if t1 - t0 >= WAIT_FLOOR_NS:
                record(WAIT, 0, 0, 0, t0, t1)

    return wait


def install(torch):
    patch.patch(threading.Condition, "wait", _make_wait, "Condition.wait")
    dist = getattr(torch, "distributed", None)
    if dist is None or not dist.is_available():
        return
    compiling = patch.compiling_test(torch)
    inner = sys.modules.get("torch.distributed.distributed_c10d")
    for name in COLLECTIVES:
        original = getattr(inner, name, None)
        if original is None:
            patch.missing(name)
        elif patch.patch(inner, name, make_sync(name, compiling, collective)):
            patch.replace(dist, name, getattr(inner, name), original)
    original = getattr(inner, "init_process_group", None)
    if patch.patch(inner, "init_process_group", _make_init):
        patch.replace(dist, "init_process_group", inner.init_process_group, original)
    parallel = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    make = make_parallel_forward(torch, compiling)
    patch.patch(parallel, "_post_forward", make, "DistributedDataParallel")
    work = getattr(dist, "Work", None)
    if work is not None:  # a C type: where it cannot be changed, handles are not seen
        patch.patch(work, "wait", make_sync("wait", compiling, collective), "Work.wait")
