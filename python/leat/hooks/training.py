"""Backward, optimizer steps with closures, GradScaler, gradient clipping, checkpoints.

Optimizer steps are seen by torch's global step hooks. The post-hook does not run when step()
raises, and steps may nest (an optimizer that wraps another), so a thread has one open step, the
outermost. A pre-hook that finds an open step checks whether it is on the call stack; if not, it has
failed and is dropped.

Dynamo traces the optimizer hooks and clip_grad inside a compiled function. They must vanish there:
the test compiling() comes first, and Dynamo folds it to a constant. Until Dynamo compiles
something, the optimizer hooks are C functions, which cost less.
"""

import sys
import threading

from .. import _record
from . import patch, process
from .object_table import ObjectTable

ERROR = _record.FLAG_ERROR
OPTIMIZER = _record.OPTIMIZER
begin = _record.begin
now = _record.now_ns
record = _record.record
end = _record.end
begin_step = _record.begin_step
end_step = _record.end_step

optimizers = ObjectTable()


def _nested():
    """Whether a step is part of a backward that is open in this process. The recorder knows of
    steps in the thread of the backward; on a GPU, autograd runs in threads of its own, which are
    not Python's."""
    if _record.inside(_record.BACKWARD):
        return False
    return isinstance(threading.current_thread(), threading._DummyThread)


def _number(optimizer):
    """A number for each optimizer, kept as its attribute `_leat`; torch neither saves nor copies
    it."""
    try:
        return optimizer._leat
    except AttributeError:
        number = optimizers.number(optimizer)
        try:
            optimizer._leat = number
        except Exception:
            pass
        return number


def _correct_steps(step_frame):
    """A step begins while another seems to be open. All steps run in the same code, torch's wrapper
    of step(), so the call stack shows which are open; one that is not on it has failed."""
    code = step_frame.f_code
    frame = step_frame
    steps = 0
    while frame is not None:
        steps += frame.f_code is code
        frame = frame.f_back
    _record.correct_steps(steps)


def _time_closure(closure, number):
    def timed(*args, **kwargs):
        flags = ERROR
        t0 = now()
        try:
            result = closure(*args, **kwargs)
            flags = 0
            return result
        finally:
            record(_record.CLOSURE, flags, number, 0, t0)

    return timed


def _with_closure(optimizer, args, kwargs):
    """The arguments of step() with its closure timed, or None when there is none."""
    if len(args) > 1:
        if callable(args[1]):
            timed = _time_closure(args[1], _number(optimizer))
            return (args[0], timed, *args[2:]), kwargs
    elif callable(kwargs.get("closure")):
        timed = _time_closure(kwargs["closure"], _number(optimizer))
        return args, {**kwargs, "closure": timed}
    return None


def _begin_unusual_step(optimizer, args, kwargs):
    """A step with arguments, or inside another one: begin_step() calls this."""
    changed = _with_closure(optimizer, args, kwargs)
    if not begin(OPTIMIZER):
        frame = sys._getframe(1)
        _correct_steps(frame.f_back if frame.f_globals is globals() else frame)
    return changed


def _hook_steps(optimizer, compiling):
    """Installs the hooks of optimizers. Returns a function to call before Dynamo compiles anything:
    it may trace a step, and can trace only Python."""
    _record.set_step_functions(_begin_unusual_step, _number, _nested)
    pre = optimizer.register_optimizer_step_pre_hook(begin_step)
    patch.on_remove(pre.remove)
    post = optimizer.register_optimizer_step_post_hook(end_step)
    patch.on_remove(post.remove)

    def before(optimizer, args, kwargs):
        return None if compiling() else begin_step(optimizer, args, kwargs)

    def after(optimizer, args, kwargs):
        if not compiling():
            end_step(optimizer, args, kwargs)

    def prepare():
        for handle, hook in ((pre, before), (post, after)):
            hooks = handle.hooks_dict_ref()
            if hooks is not None and handle.id in hooks:
                hooks[handle.id] = hook

    return prepare


_before_compiling = []


def prepare_for_dynamo():
    """Dynamo is about to compile. Never raises."""
    try:
        while _before_compiling:
            _before_compiling.pop()()
    except Exception:
        patch.missing("optimizer hooks")


def make_scaler_step(compiling):
    def make(original):
        def step(self, optimizer, *args, **kwargs):
            if compiling():
                return original(self, optimizer, *args, **kwargs)
            _record.begin_scaler()
            flags = ERROR
            try:
                result = original(self, optimizer, *args, **kwargs)
                flags = 0
                return result
            finally:
                _record.end_scaler(flags, _number(optimizer))

        return step

    return make


def make_named(span, name, compiling):
    """A span that is recorded by name, the outermost only; the name of a phase charges that
    phase."""

    def make(original):
        def named(*args, **kwargs):
            if compiling() or not begin(span):
                return original(*args, **kwargs)
            number = 0
            flags = ERROR
            try:
                number = process.name_id(name)
                result = original(*args, **kwargs)
                flags = 0
                return result
            finally:
                end(span, flags, number, 0)

        return named

    return make


def _patch_both(first, second, attribute, make, point):
    """Patches a function that torch has under two names."""
    original = getattr(second, attribute, None)
    if patch.patch(second, attribute, make, point):
        patch.replace(first, attribute, getattr(second, attribute), original)


# Modules other than torch's own that write checkpoints, and the functions of theirs that do.
SAVERS = {
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save", "save_state_dict"),
    "safetensors.torch": ("save", "save_file", "save_model"),
}


def install_savers(module, torch):
    make = make_named(_record.CHECKPOINT, "checkpoint", patch.compiling_test(torch))
    for name in SAVERS[module.__name__]:
        if hasattr(module, name):
            patch.patch(module, name, make, f"{module.__name__}.{name}")


def install(torch):
    compiling = patch.compiling_test(torch)
    if patch.patch(torch.autograd, "backward", _record.Backward, "autograd.backward"):
        process.signals(_record.SIGNAL_BACKWARD)

    try:
        from torch.optim import optimizer

        _before_compiling.append(_hook_steps(optimizer, compiling))
        process.signals(_record.SIGNAL_OPTIMIZER)
    except Exception:
        patch.missing("optimizer hooks")

    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if scaler is None:  # before torch 2.3
        scaler = getattr(torch.cuda.amp, "GradScaler", None)
    make = make_scaler_step(compiling)
    patch.patch(scaler, "step", make, "GradScaler.step")

    make = make_named(_record.CHECKPOINT, "checkpoint", compiling)
    _patch_both(torch, torch.serialization, "save", make, "torch.save")
    utils = torch.nn.utils
    make = make_named(_record.CLIPPING, "optimizer", compiling)
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        _patch_both(utils, utils.clip_grad, name, make, name)
