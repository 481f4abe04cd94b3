"""What this process has reported to leat beside its records.

The recorder's tables (names, loaders), facts and signals are in the shared memory of one process. A
forked child gets an empty one on its first record. So everything that was reported is also kept
here, and the child reports it again, in the same order, before its first record: the ids that its
inherited objects hold stay valid.

A process gets the role `main` with its first fetch, backward or optimizer step. Until then it
reports nothing: a launcher or a forked helper costs nothing, and its role is `other`.
"""

import os
import threading

from .. import _record
from . import text


class _Reported:
    def __init__(self):
        self.names = {}  # text -> id
        self.loaders = []  # their descriptions, in the order of their ids
        self.facts = {}
        self.signals = 0
        self.cost_ns = 0
        self.rank = None
        self.iterations = 0  # of all loaders
        self.by_this_process = False  # False in a forked child before its first record


reported = _Reported()
lock = threading.RLock()
role = _record.ROLE_OTHER


def open_recorder():
    """True when leat is there to record for."""
    try:
        return bool(os.environ.get("LEAT_SOCKET")) and _record.open() == 0
    except Exception:
        return False


def _report_all():
    reported.by_this_process = True
    for name in list(reported.names):
        _record.name(name)
    for description in list(reported.loaders):
        _record.loader(*description)
    for key, value in list(reported.facts.items()):
        _record.fact(key, value)
    _record.signals(reported.signals)
    if reported.cost_ns:
        _record.cost(reported.cost_ns)
    if reported.rank:
        _record.rank(*reported.rank)


def report():
    """Must be called before the first record of this process; again does nothing."""
    with lock:
        if not reported.by_this_process:
            _report_all()


def take_role(new_role, worker_id=-1):
    """The first role that a process takes is its role."""
    global role
    with lock:
        report()
        if role == _record.ROLE_OTHER:
            role = new_role
            _record.role(new_role, worker_id)


training_threads = set()  # those that have fetched a batch, trained, or both


def take_main_role():
    training_threads.add(threading.get_ident())
    take_role(_record.ROLE_MAIN)


_record.on_first_span(take_main_role)  # the first span of training of each thread


def fact(key, value):
    with lock:
        value = text.cut(value, 512)
        reported.facts[key] = value
        if reported.by_this_process:
            _record.fact(key, value)


def signals(bits):
    with lock:
        reported.signals |= bits
        if reported.by_this_process:
            _record.signals(bits)


def rank(*numbers):
    """rank(rank, local rank, world size)."""
    with lock:
        reported.rank = numbers
        report()
        _record.rank(*numbers)


def cost(ns):
    with lock:
        reported.cost_ns = ns
        if reported.by_this_process:
            _record.cost(ns)


def name_id(name):
    """The id of a name, which is reported on first use."""
    found = reported.names.get(name)
    if found is None or not reported.by_this_process:
        with lock:
            report()
            found = reported.names.get(name)
            if found is None:
                found = reported.names[name] = _record.name(text.cut(name, 64))
    return found


def loader_id(description):
    with lock:
        report()
        found = _record.loader(*description)
        reported.loaders.append(description)
        return found


def next_iteration():
    """A new number for each iteration of any loader, starting at 1."""
    with lock:
        reported.iterations += 1
        return reported.iterations


def _after_fork_in_child():
    global lock, role
    lock = threading.RLock()  # a thread of the parent may have held it
    training_threads.clear()
    _record.after_fork()
    reported.by_this_process = False
    role = _record.ROLE_OTHER


os.register_at_fork(after_in_child=_after_fork_in_child)
