"""Putting wrappers in and taking them out again.

Each patch remembers what was there. A point that a torch version lacks is noted and reported as
missing; it costs that one signal, not the run. A wrapper that somebody has wrapped in turn is left
where it is: without a listener its records go nowhere.
"""

import functools

from leat import _state

_ABSENT = object()
_patches = []  # (owner, attribute, wrapper, what was in the owner's own dict or _ABSENT)
_undo = []  # functions that undo what is not an attribute
_missing = []


def _skip_code():
    """Dynamo must not compile the frames of wrappers when they are called from a graph break, as
    it does not compile those of torch itself. This asks it without importing it."""
    try:
        import torch

        return torch._C._dynamo.eval_frame.skip_code
    except Exception:
        return None


def missing(point):
    if point not in _missing:
        _missing.append(point)
        _state.fact("missing", _state.text(", ".join(_missing), 256))


def patch(owner, attribute, make, point=None, wraps=True):
    """Replaces owner.attribute by make(original). Never raises."""
    try:
        original = getattr(owner, attribute)
        wrapper = make(original)
        if wraps:
            wrapper = functools.wraps(original)(wrapper)
        dont_compile(wrapper)
        own = vars(owner).get(attribute, _ABSENT)
        setattr(owner, attribute, wrapper)
        _patches.append((owner, attribute, wrapper, own))
        return True
    except Exception:
        missing(point or attribute)
        return False


def dont_compile(function):
    skip = _skip_code()
    code = getattr(function, "__code__", None)
    if skip is not None and code is not None:
        try:
            skip(code)
        except Exception:
            pass


def replace(owner, attribute, wrapper, original):
    """A second name of a function already wrapped."""
    try:
        if getattr(owner, attribute, None) is original:
            setattr(owner, attribute, wrapper)
            _patches.append((owner, attribute, wrapper, original))
    except Exception:
        pass


def on_remove(function):
    _undo.append(function)


def remove(only=None):
    """Takes out all patches, or those on the owner `only`, the last one first."""
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
