"""What this process has told leat, and what each thread is doing.

The recorder's tables (names, loaders), facts and signals live in the memory of one process. A
forked child gets a memory of its own, empty, on its first record. So everything that was said is
also kept here, and said again, in the same order, when a child speaks for the first time: the ids
that its inherited objects carry stay true.

A process becomes `main` with its first fetch, backward or optimizer step. Until then it says
nothing: a launcher, or a helper that was forked off, costs nothing and is seen as `other`.
"""

import os
import sys
import threading
import weakref

from leat import _record

now = _record.now_ns
record = _record.record


class _Said:
    """What leat has been told, for the children to repeat."""

    def __init__(self):
        self.names = {}
        self.loaders = []
        self.facts = {}
        self.signals = 0
        self.cost_ns = 0
        self.rank = None
        self.iterations = 0
        self.in_this_process = False


said = _Said()
lock = threading.RLock()

# Of this process: whether it has taken its role, and which.
role = _record.ROLE_OTHER


def text(value, most):
    """A string that fits a place of `most` bytes with its final NUL, cut between characters."""
    value = str(value).replace("\0", " ").replace("\n", " ")
    return value.encode("utf-8", "replace")[: most - 1].decode("utf-8", "ignore")


def open_recorder():
    """True when there is somebody to record for."""
    try:
        return bool(os.environ.get("LEAT_SOCKET")) and _record.open() == 0
    except Exception:
        return False


def _tell():
    """Says everything again: the first words of a process."""
    said.in_this_process = True
    for name in list(said.names):
        _record.name(name)
    for info in list(said.loaders):
        _record.loader(*info)
    for key, value in list(said.facts.items()):
        _record.fact(key, value)
    _record.signals(said.signals)
    if said.cost_ns:
        _record.cost(said.cost_ns)
    if said.rank:
        _record.rank(*said.rank)


def speak(as_role=None, worker_id=-1):
    """Before this process's first record, and before it takes a role."""
    global role
    with lock:
        if not said.in_this_process:
            _tell()
        if as_role is not None and role == _record.ROLE_OTHER:
            role = as_role
            _record.role(as_role, worker_id)


def speak_main():
    """Before a thread's first span of training. A worker stays a worker."""
    speak(_record.ROLE_MAIN)


_record.on_first(speak_main)


def fact(key, value):
    with lock:
        value = text(value, 512)
        said.facts[key] = value
        if said.in_this_process:
            _record.fact(key, value)


def signals(bits):
    with lock:
        said.signals |= bits
        if said.in_this_process:
            _record.signals(bits)


def rank(*numbers):
    with lock:
        said.rank = numbers
        speak()
        _record.rank(*numbers)


def cost(ns):
    with lock:
        said.cost_ns = ns
        if said.in_this_process:
            _record.cost(ns)


def name_id(name):
    """The id of a name, told to leat on first use."""
    found = said.names.get(name)
    if found is None or not said.in_this_process:
        with lock:
            speak()
            found = said.names.get(name)
            if found is None:
                found = said.names[name] = _record.name(text(name, 64))
    return found


def loader_id(info):
    with lock:
        speak()
        found = _record.loader(*info)
        said.loaders.append(info)
        return found


def next_iteration():
    with lock:
        said.iterations += 1
        return said.iterations


def _forked():
    """In the child of a fork only this thread lives on, and nothing it was doing goes on here."""
    global lock, role
    lock = threading.RLock()
    _record.forget()
    said.in_this_process = False
    role = _record.ROLE_OTHER


os.register_at_fork(after_in_child=_forked)


class Serials:
    """A small number for each object, by identity. Objects are held weakly, and an object at the
    address of a dead one is a new one."""

    def __init__(self):
        self._known = {}
        self._next = 0

    def find(self, thing):
        """The number, or None."""
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        return None

    def get(self, thing):
        known = self._known.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        with lock:
            number = self._next
            self._next += 1
            self.put(thing, number)
            return number

    def put(self, thing, value):
        place = id(thing)
        known = self._known

        def gone(reference):
            if place in known and known[place][0] is reference:
                del known[place]

        try:
            known[place] = (weakref.ref(thing, gone), value)
        except TypeError:  # cannot be held weakly: it is kept, with its number
            known[place] = ((lambda: thing), value)


def dynamo_test(torch):
    """A function that Dynamo folds to True and that is False, and quick, everywhere else."""
    for owner, name in (
        (getattr(torch, "compiler", None), "is_dynamo_compiling"),
        (getattr(torch, "compiler", None), "is_compiling"),
        (getattr(torch, "_utils", None), "is_compiling"),
    ):
        found = getattr(owner, name, None)
        if found is not None:
            return found
    return bool


_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # of the package
# The standard library, and the folder of the scripts that start installed packages.
_PYTHON = (os.path.dirname(os.__file__) + os.sep, os.path.join(sys.prefix, "bin") + os.sep)


def _own_paths():
    """The folders of leat and torch."""
    torch = sys.modules.get("torch")
    paths = [_HOME]
    if torch is not None and getattr(torch, "__file__", None):
        paths.append(os.path.dirname(torch.__file__) + os.sep)
    return tuple(paths)


def is_library(path):
    """Whether a file of code is of an installed package or of Python itself, not the user's own.
    The prefix alone does not tell: it may be /usr, and the user's code in /usr/src."""
    if path.startswith(("<frozen", *_own_paths(), *_PYTHON)):
        return True
    return f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path


def short_path(path):
    """As the user would write it: relative to where they stand, if it is below."""
    try:
        here_ = os.getcwd() + os.sep
        if path.startswith(here_):
            return path[len(here_) :]
    except OSError:
        pass
    return path


def place(path, line, most=160):
    """`file:line`, keeping the end when it is too long: the line must survive."""
    spot = f"{short_path(path)}:{line}"
    raw = spot.encode("utf-8", "replace")
    if len(raw) < most:
        return spot
    return "..." + raw[-(most - 4) :].decode("utf-8", "ignore")


def caller():
    """`file:line` of the innermost frame of the user's own. A training that is an installed package
    has none: there, of the innermost that is neither torch's nor leat's; "" if none is."""
    own = ("<frozen", *_own_paths())
    other = ""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_library(path):
            return place(path, frame.f_lineno)
        if not other and not path.startswith(own):
            other = place(path, frame.f_lineno)
        frame = frame.f_back
    return other


def call_path():
    """A number for the lines that led here: the same for the same place reached the same way."""
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        lines.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return hash(tuple(lines))
