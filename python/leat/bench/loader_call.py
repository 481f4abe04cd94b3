"""The source text of the call that made a loader."""

import ast
import inspect
import linecache
import os
import re
import sys
import weakref

from leat.bench import device_copies
from leat.hooks import text, user_code

_MAX_TEXT = 160
_calls = weakref.WeakKeyDictionary()  # loader -> (where, name, [[argument, expression]])


def remember(loader, args, kwargs):
    """Called when a loader has been made. Never raises."""
    try:
        frame = _user_frame()
        where = name = ""
        call = None
        if frame is not None:
            path, line = frame.f_code.co_filename, frame.f_lineno
            where = user_code.call_site(path, line, 180)
            name, call = _read_call(path, line, type(loader), kwargs)
        if call is None:
            call = _call_from_values(loader, args, kwargs)
        _calls[loader] = where, name, call
    except Exception:
        pass


def _user_frame():
    frame = sys._getframe(2)
    while frame is not None and user_code.is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _parameters(kind):
    return [p for p in inspect.signature(kind.__init__).parameters if p != "self"]


def _read_call(path, line, kind, kwargs):
    """The name and the arguments of the call at a line, as in the source; None if the source does
    not list them one by one. Arguments of **settings are added by value."""
    source = "".join(linecache.getlines(path))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return "", None
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= node.end_lineno:
            name = ast.unparse(node.func)
            # Of nested calls, the one with the name of the loader's class.
            if name.split(".")[-1] == kind.__name__ or name.endswith("DataLoader"):
                found = node
    if found is None:
        return "", None
    name = ast.unparse(found.func)
    if any(isinstance(a, ast.Starred) for a in found.args):
        return name, None
    names = _parameters(kind)
    call = [
        ["" if i == 0 else names[i], _expression(source, value)]
        for i, value in enumerate(found.args)
    ]
    call += [[k.arg, _expression(source, k.value)] for k in found.keywords if k.arg]
    if any(k.arg is None for k in found.keywords):
        known = {argument for argument, _ in call}
        call += [[k, _value(k, v)] for k, v in kwargs.items() if k not in known]
    return name, call


def _expression(source, node):
    text = ast.get_source_segment(source, node) or ""
    return ast.unparse(node) if "\n" in text or not text else text


def _call_from_values(loader, args, kwargs):
    """If the source cannot be read: the values, or the names of those without a short text."""
    names = _parameters(type(loader))
    call = [["" if i == 0 else names[i], _value(names[i], v)] for i, v in enumerate(args)]
    return call + [[name, _value(name, value)] for name, value in kwargs.items()]


def _value(name, value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__qualname__
    return name


def one_line(error):
    """An exception in one line, without what torch adds to an exception of a worker."""
    message = str(error).strip()
    kind = type(error).__name__
    lines = [line for line in message.splitlines() if line.strip()]
    if "DataLoader worker process" in message and lines:
        message = lines[-1]
    else:
        message = f"{kind}: {lines[0]}" if lines else kind
    message = message.replace("RuntimeError: DataLoader worker", "worker")
    message = re.sub(r" \(pid(\(s\))? [\d, ]+\)", "", message)
    return text.cut(message, _MAX_TEXT)


def _length(thing):
    try:
        return len(thing)
    except Exception:
        return None


def _context(loader):
    context = loader.multiprocessing_context
    if context is None:
        import multiprocessing

        return multiprocessing.get_start_method()
    name = getattr(context, "get_start_method", None)
    return name() if name else str(context)


def describe(torch, loader, variants):
    """The description of the loader for leat."""
    where, name, call = _calls.get(loader, ("", "", None))
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return {
        "pid": os.getpid(),
        "torch": str(torch.__version__),
        "dataset": text.cut(type(loader.dataset).__qualname__, 90),
        "where": where,
        "call_name": name,
        "call": call,
        "context": _context(loader),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": int(bool(loader.pin_memory)),
        "persistent_workers": int(bool(loader.persistent_workers)),
        "batch_size": size if isinstance(size, int) else None,
        "dataset_length": None if variants.iterable else _length(loader.dataset),
        "epoch_batches": None if variants.iterable else _length(loader),
        "iterable": int(variants.iterable),
        "can_batch": int(variants.can_batch),
        "accelerator": int(variants.accelerator),
        "leat": int(variants.is_made_by_leat()),
        "local_ranks": int(os.environ.get("LOCAL_WORLD_SIZE") or 1),
        **describe_method(torch, variants),
    }


def describe_method(torch, variants):
    """How batches are brought to the device, and whether leat can make them."""
    method = variants.method
    on_device = method.device is not None
    return {
        "device": device_copies.name_of(torch, method.device) if on_device else "",
        "non_blocking": None if method.non_blocking is None else int(method.non_blocking),
        "copy_bytes": method.bytes(variants.kept)
        if on_device and variants.kept is not None
        else None,
        "can_leat": int(variants.leat_can_make()),
    }
