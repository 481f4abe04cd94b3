"""Which code is the user's own, and where a call comes from.

A call site is `file:line`, the file relative to the working directory if it is below it.
"""

import os
import sys

from . import text

PACKAGE = __name__.partition(".")[0]  # "leat", except where the script has a leat of its own
LEAT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The standard library, and the folder of the scripts that start installed packages.
_PYTHON = (os.path.dirname(os.__file__) + os.sep, os.path.join(sys.prefix, "bin") + os.sep)


def _leat_and_torch():
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch, "__file__", None):
        return LEAT, os.path.dirname(torch.__file__) + os.sep
    return (LEAT,)


def is_library(path):
    """Whether a file of code is of an installed package or of Python itself, not the user's own.
    sys.prefix alone does not decide: it may be /usr, and the user's code in /usr/src."""
    if path.startswith(("<frozen", *_leat_and_torch(), *_PYTHON)):
        return True
    return f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path


def short_path(path):
    """Relative to the working directory, if it is below it."""
    try:
        folder = os.getcwd() + os.sep
        if path.startswith(folder):
            return path[len(folder) :]
    except OSError:
        pass
    return path


def call_site(path, line, size=160):
    """`file:line`, with the end kept where it is too long for `size` bytes."""
    return text.keep_end(f"{short_path(path)}:{line}", size)


def caller():
    """The call site of the innermost frame of the user's own code. A training that is an installed
    package has none: then that of the innermost frame outside torch and leat; "" if there is
    none."""
    own = ("<frozen", *_leat_and_torch())
    other = ""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_library(path):
            return call_site(path, frame.f_lineno)
        if not other and not path.startswith(own):
            other = call_site(path, frame.f_lineno)
        frame = frame.f_back
    return other


def call_path():
    """A hash of all lines on the call stack: equal for the same call reached by the same calls."""
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return hash(tuple(lines))
