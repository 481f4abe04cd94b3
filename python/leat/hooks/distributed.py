"""Waits for other ranks and other threads, and the rank of this process.

DistributedDataParallel reduces gradients from C++ inside the backward, and waits for the other
ranks in a callback that autograd calls at its end. leat adds a callback that runs before that one:
then this rank's own gradients are complete. The callback is added when the gradient of the model's
output is computed: inside the backward, before any parameter has its gradient. Collectives that the
script calls itself are recorded as calls.
"""

import os
import sys
import threading

from .. import _record
from . import patch, process

begin = _record.begin
now = _record.now_ns
record = _record.record
collective = _record.collective
end = _record.end
inside = _record.inside
waits = _record.is_computing
ERROR = _record.FLAG_ERROR
FETCH = _record.FETCH
SYNC = _record.SYNC
WAIT = _record.WAIT

# A shorter wait is the cost of taking a lock.
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


def make_sync(name, compiling, at_edge=lambda begins: None):
    """A call that may block: a SYNC span, the outermost only. `at_edge` is called at its begin and
    end."""

    def make(original):
        def sync(*args, **kwargs):
            if compiling() or inside(FETCH) or not begin(SYNC):
                return original(*args, **kwargs)
            number = 0
            flags = ERROR
            try:
                at_edge(True)
                number = process.name_id(name)
                result = original(*args, **kwargs)
                flags = 0
                return result
            finally:
                end(SYNC, flags, number, 0)
                at_edge(False)

        return sync

    return make


MAX_VALUES = 100  # of an output; a tensor is among the first


def _first_with_gradient(torch, output):
    """The first tensor of a model's output that requires a gradient, or None."""
    waiting = [output]
    for _ in range(MAX_VALUES):
        if not waiting:
            break
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                return value
        elif isinstance(value, dict):
            waiting.extend(reversed(list(value.values())[:MAX_VALUES]))
        elif isinstance(value, (list, tuple)):
            waiting.extend(reversed(value[:MAX_VALUES]))
    return None


def make_parallel_forward(torch, compiling):
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def add_callback(gradient):
        try:
            queue_callback(_record.gradients_ready)
        except Exception:  # the user's backward continues
            patch.missing("DistributedDataParallel: callback")

    # Otherwise torch warns of the hook when the script saves an output.
    add_callback.__torch_unserializable__ = True

    def make(original):
        def _post_forward(self, *args, **kwargs):
            output = original(self, *args, **kwargs)
            if not compiling():
                try:
                    tensor = _first_with_gradient(torch, output)
                    if tensor is not None:
                        tensor.register_hook(add_callback)
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


def _timed_wait(condition):
    original = condition.wait

    def wait(timeout=None):
        if not waits():
            return original(timeout)
        t0 = now()
        try:
            return original(timeout)
        finally:
            t1 = now()
            if t1 - t0 >= WAIT_FLOOR_NS:
                record(WAIT, 0, 0, 0, t0, t1)

    return wait


def watch_waits():
    """A script may fetch in one thread and train in another, which waits for the first on a
    Condition, mostly that of a queue.Queue. This is called in threads that train or fetch, and times
    from then on the waits on each Condition on which another such thread waits at this moment. Only
    these objects are changed; threading.Condition is not."""
    if len(process.training_threads) < 2:
        return
    own = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        if (
            thread != own
            and thread in process.training_threads
            and frame.f_code is threading.Condition.wait.__code__
        ):
            condition = frame.f_locals.get("self")
            if type(condition) is threading.Condition and "wait" not in vars(condition):
                condition.wait = _timed_wait(condition)


def install(torch):
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
    if work is not None:  # a C type: if it cannot be changed, waits on handles are not recorded
        patch.patch(work, "wait", make_sync("wait", compiling, collective), "Work.wait")
