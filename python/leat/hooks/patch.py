"""Installs wrappers and removes them.

A patch remembers the original. A patch point that this torch does not have is reported as missing;
it costs one signal. A wrapper that other code has wrapped in turn is left in place: after leat has
stopped, its records are dropped.
"""

import functools
import sys
import types

from . import process, text, user_code

_ABSENT = object()
_patches = []  # (owner, attribute, wrapper, what was in the owner's own dict or _ABSENT)
_undo = []  # functions that undo what is not an attribute
_missing = []


def missing(point):
    if point not in _missing:
        _missing.append(point)
        process.fact("missing", text.cut(", ".join(_missing), 256))


def patch(owner, attribute, make, point=None, wraps=True):
    """Replaces owner.attribute by make(original). Never raises."""
    try:
        original = getattr(owner, attribute)
        wrapper = make(original)
        if wraps:
            wrapper = functools.wraps(original)(wrapper)
        own = vars(owner).get(attribute, _ABSENT)
        setattr(owner, attribute, wrapper)
        _patches.append((owner, attribute, wrapper, own))
        return True
    except Exception:
        missing(point or attribute)
        return False


def _codes(code):
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _functions(namespace):
    for value in list(vars(namespace).values()):
        if isinstance(value, types.FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__.startswith(user_code.PACKAGE + "."):
            yield from _functions(value)


def hide_from_dynamo(skip_code):
    """After a graph break Dynamo compiles every function that is called, except torch's own. This
    excludes leat's functions too, so that it compiles the same as without leat."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == user_code.PACKAGE:
            for function in _functions(module):
                for code in _codes(function.__code__):
                    skip_code(code)


def replace(owner, attribute, wrapper, original):
    """Patches a second name of a function that is already patched."""
    try:
        if getattr(owner, attribute, None) is original:
            setattr(owner, attribute, wrapper)
            _patches.append((owner, attribute, wrapper, original))
    except Exception:
        pass


def compiling_test(torch):
    """A function that Dynamo folds to True and that returns False, quickly, everywhere else."""
    for owner, name in (
        (getattr(torch, "compiler", None), "is_dynamo_compiling"),
        (getattr(torch, "compiler", None), "is_compiling"),
        (getattr(torch, "_utils", None), "is_compiling"),
    ):
        found = getattr(owner, name, None)
        if found is not None:
            return found
    return bool


def on_remove(function):
    _undo.append(function)


def remove(only=None):
    """Removes all patches, or those on the owner `only`, the last one first."""
    keep = []
    while _patches:
        entry = owner, attribute, wrapper, own = _patches.pop()
        if only is not None and owner is not only:
            keep.append(entry)
            continue
        try:
            if vars(owner).get(attribute) is not wrapper:
                continue
            if own is _ABSENT:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)
        except Exception:
            pass
    _patches.extend(reversed(keep))
    while only is None and _undo:
        try:
            _undo.pop()()
        except Exception:
            pass
