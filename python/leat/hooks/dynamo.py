"""torch.compile: compilations, and optimizer steps that are part of a compiled graph.

Inside a compiled function the hooks of an optimizer do nothing, and nothing may replace them: the
graph must be the same as without leat. So leat watches how the graph is made. Dynamo asks the
optimizer for its state while it traces step(), and later installs the compiled graph under a global
name. A graph that was traced through an optimizer is installed with a wrapper, which records the
step.

    OptimizerVariable.call_method("_init_group")     this graph steps that optimizer
    OutputGraph.install_global_unsafe(name, graph)   each call of the graph is a step of it
"""

import os
import sys

from .. import _record
from . import patch, process
from .training import optimizers, prepare_for_dynamo

ERROR = _record.FLAG_ERROR
OPTIMIZER = _record.OPTIMIZER
begin = _record.begin
now = _record.now_ns
record = _record.record
end = _record.end


def hide_from_dynamo(eval_frame):
    skip_code = getattr(eval_frame, "skip_code", None)
    if skip_code is None:  # before torch 2.7 or so
        skip_code = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "skip_code", None)
    if skip_code is None:
        patch.missing("skip_code")
    else:
        patch.hide_from_dynamo(skip_code)
    folder = os.path.dirname(eval_frame.__file__)
    if not os.path.exists(os.path.join(folder, "callback.py")):  # before torch 2.3
        patch.missing("torch.compile")
        prepare_for_dynamo()


def install_spans(callback):
    """Compilations, by torch._dynamo.callback: start and end of the outermost one. The handler's
    methods are replaced, because torch._dynamo.reset() empties its lists."""
    handler = getattr(callback, "CompilationCallbackHandler", None)
    starts = []

    def make_start(original):
        def run_start_callbacks(self, *args, **kwargs):
            prepare_for_dynamo()
            starts[:] = [now()]
            return original(self, *args, **kwargs)

        return run_start_callbacks

    def make_end(original):
        def run_end_callbacks(self, *args, **kwargs):
            if starts:
                process.report()
                record(_record.COMPILE, 0, 0, 0, starts.pop())
            return original(self, *args, **kwargs)

        return run_end_callbacks

    if not patch.patch(handler, "run_start_callbacks", make_start, "torch.compile"):
        prepare_for_dynamo()
    patch.patch(handler, "run_end_callbacks", make_end, "torch.compile")


def _make_call_method(original):
    def call_method(self, tx, name, args, kwargs):
        if name == "_init_group":
            try:
                # Only the first optimizer counts: the graph has one wrapper, so it is one step.
                vars(tx.output).setdefault("_leat", optimizers.number(self.value))
            except Exception:
                pass
        return original(self, tx, name, args, kwargs)

    return call_method


def _as_step(graph, number):
    def step(*args, **kwargs):
        if not begin(OPTIMIZER):  # inside a step that is recorded
            return graph(*args, **kwargs)
        flags = ERROR
        try:
            result = graph(*args, **kwargs)
            flags = 0
            return result
        finally:
            end(OPTIMIZER, flags, number, 0)

    return step


def _make_install_global(original):
    def install_global_unsafe(self, name, value):
        number = vars(self).get("_leat")
        if number is not None and name.startswith("__compiled_fn"):
            value = _as_step(value, number)
        return original(self, name, value)

    return install_global_unsafe


def install_trace(variables):
    owner = getattr(variables, "OptimizerVariable", None)
    patch.patch(owner, "call_method", _make_call_method, "compiled optimizer")


def install_graphs(output_graph):
    owner = getattr(output_graph, "OutputGraph", None)
    patch.patch(owner, "install_global_unsafe", _make_install_global, "compiled optimizer")


# Called when these modules of Dynamo have been imported.
IMPORTED = {
    "torch._dynamo.eval_frame": hide_from_dynamo,
    "torch._dynamo.callback": install_spans,
    "torch._dynamo.variables.optimizer": install_trace,
    "torch._dynamo.output_graph": install_graphs,
}
