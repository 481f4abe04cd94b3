"""The part of `leat bench` that is in the user's process: it does as it is told.

When the training loader is iterated for the first time, this takes over: it connects to leat, tells
about the loader, and then obeys one order after the other (lines of JSON):

    step      let the script make a step, and see how it copies the batch to its device
    samples   time single samples, in this process
    measure   build a loader from the user's with other settings, say when each batch comes
    model     hand the script a cached batch again and again, and time its steps; then end
    end       end

The loaders that are measured take their indices from one stream over the user's sampler, so that a
row reads what no row before it has read, as an epoch would, and the page cache flatters nobody. The
random state is given back as it was. The script never goes on after this: whatever it would do with
a model that was trained on one batch (save it, above all) must not happen, so the process ends
without running another line of it.
"""

import json
import os
import select
import signal
import socket
import sys
import time

from leat.bench import device_copies, loader_call, loader_rows
from leat.hooks import patch

now = time.perf_counter
_SAY_EVERY_S = 0.05
# Batches handed out to see a copy. A script may only look at its first batch, or fetch some ahead.
_MOST_FIRST = 4

_state = None  # the one _Bench of this process


class _Abandoned(BaseException):
    """leat wants the current order to end. Not an Exception: a dataset may catch those."""


def install(torch):
    """Called when torch has been imported. Never raises."""
    try:
        from torch.utils.data import DataLoader

        global _state
        if _state is None:
            _state = _Bench(torch, os.environ.get("LEAT_BENCH", ""))
            patch.patch(DataLoader, "__init__", _make_init)
            patch.patch(DataLoader, "__iter__", _make_iter)
    except Exception:
        pass


def _make_init(original):
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not _state.serving:
            loader_call.remember(self, args, kwargs)

    return __init__


def _make_iter(original):
    def __iter__(self):
        if _state.wants(self):
            return _state.take_over(self)
        return original(self)

    return __iter__


def run_factory(word):
    """`leat bench module:function`: the loader is what the function returns."""
    import importlib

    import torch

    sys.path.insert(0, os.getcwd())
    install(torch)
    module, _, function = word.partition(":")
    loader = importlib.import_module(module)
    for name in function.split("."):
        loader = getattr(loader, name)
    loader = loader()
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise SystemExit(f"{word} returned {type(loader).__name__}, not a torch DataLoader")
    _state.take_over(loader, from_factory=True)


class _Bench:
    def __init__(self, torch, address):
        self.torch = torch
        self.address = address
        self.which = int(os.environ.get("LEAT_BENCH_LOADER") or 0)
        self.seen = []  # loaders that were iterated, for --loader
        self.serving = False
        self.modelling = None  # the loader in whose place the script has ...
        self.script = None  # ... this, a _Script
        self.obeying = False
        self.socket = None
        self.heard = b""
        self.in_order = False  # SIGUSR2 may end what is going on

    # ---- when --------------------------------------------------------------------------------

    def wants(self, loader):
        """Whether this iteration is the one to take over."""
        if self.modelling is loader and not self.obeying:
            return True
        if self.script is not None and not _is_child() and self.torch.is_grad_enabled():
            self.script.passed_by()
        if self.serving or not self.address or _is_child():
            return False
        if not self.which:
            return self.torch.is_grad_enabled()
        if not any(known is loader for known in self.seen):
            self.seen.append(loader)
        return len(self.seen) == self.which and self.seen[-1] is loader

    def take_over(self, loader, from_factory=False):
        if self.script is not None:
            return self.script
        self.serving = True
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(self.address)
        except OSError:  # leat is gone, or serves another rank: this one goes on as ever
            self.address = ""
            self.serving = False
            return iter(loader)
        self.copies = loader_rows.Copies(self.torch, loader)
        self.copies.go(self.known_way(loader) or self.likely_way(from_factory))
        self.loader = loader
        self.say("hello", **loader_call.describe(self.torch, loader, self.copies))
        order = self.obey()
        self.modelling = loader
        self.script = _Script(self, order)
        return self.script

    def known_way(self, loader):
        """That of a loader which brings its batches to the device itself."""
        device = getattr(loader, "device", None) if self.copies.is_leat() else None
        return device and device_copies.Way(device, None, device_copies.ALL)

    def likely_way(self, used):
        """To the device, if it is used, where nobody has seen how."""
        if not used or not self.copies.accelerator:
            return device_copies.Way()
        return device_copies.Way(self.torch.device("cuda", self.torch.cuda.current_device()))

    def obey(self):
        """Obeys until the script is to go on; it finds all as it was."""
        self.obeying = True
        before = _Handlers(self)
        random = loader_rows.Random(self.torch, self.loader)
        order = self.serve()
        before.restore()
        random.restore()
        self.obeying = False
        return order

    # ---- the talk ----------------------------------------------------------------------------

    def say(self, event, **more):
        more["event"] = event
        try:
            self.socket.sendall(json.dumps(more).encode() + b"\n")
        except OSError:
            leave()  # leat is gone: nobody wants the rest

    def hear(self, wait):
        """The next order; None if there is none and we do not wait."""
        while b"\n" not in self.heard:
            if not wait and not select.select([self.socket], [], [], 0)[0]:
                return None
            try:
                more = self.socket.recv(65536)
            except OSError:
                more = b""
            if not more:
                leave()
            self.heard += more
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line)

    def serve(self):
        """Obeys until told to let the script go on, for a step or with a cached batch."""
        while True:
            order = self.hear(wait=True)
            if order["do"] == "step":
                error = self.first_batch()
                self.say("first", error=error)
                if not error:
                    return order
                self.copies.go(self.likely_way(self.torch.cuda.is_initialized()))
                self.say_way()
            elif order["do"] == "samples":
                self.say("samples", **self.time_samples(order))
            elif order["do"] == "measure":
                self.say("row", **self.measure(order))
            elif order["do"] == "model":
                return order
            elif order["do"] == "end":
                leave()

    # ---- orders ------------------------------------------------------------------------------

    def first_batch(self):
        """Keeps a batch of the user's own loader; says why there is none, else nothing."""
        return self.measure(dict(self.copies.own(), batches=1))["error"]

    def say_way(self):
        self.say("step", **loader_call.describe_way(self.torch, self.copies))

    def time_samples(self, order):
        walls, cpus, error = [], [], ""
        end = now() + order["seconds"]
        try:
            self.in_order = True
            for get in self.copies.samples():
                w0, c0 = now(), time.process_time()
                get()
                cpus.append(time.process_time() - c0)
                walls.append(now() - w0)
                if len(walls) >= order["count"] or now() > end:
                    break
        except _Abandoned:
            error = "hangs"
        except Exception as problem:
            error = loader_call.one_line(problem)
        finally:
            self.in_order = False
        n = len(walls)
        # What a sample needs when nothing disturbs it: without the slowest tenth, among which are
        # those that another process was let in front of.
        calm = sorted(zip(walls, cpus))[: n - n // 10]
        walls.sort()
        return {
            "count": n,
            "mean_s": sum(walls) / n if n else None,
            "p99_s": walls[min(n - 1, int(0.99 * n))] if n else None,
            "calm_s": sum(wall for wall, _ in calm) / len(calm) if calm else None,
            "cpu_s": sum(cpu for _, cpu in calm) / len(calm) if calm else None,
            "error": error,
        }

    def measure(self, order):
        """One row. Whatever happens, the workers are gone afterwards."""
        row = _Row(self, order)
        try:
            self.in_order = True
            loader = self.copies.make(order)
            row.run(loader)
            row.restart(loader)
            row.pace = loader.pace() if order["leat"] else (None, None)
        except _Abandoned:
            row.error = loader_rows.how_died(row.iterator) or "abandoned"
        except Exception as problem:
            row.error = loader_call.one_line(problem)
            if row.iterator is None:
                # A worker died while the iterator was still being made. When that goes, with this
                # exception, it would wait five seconds for each of the others.
                row.iterator = loader_rows.half_made(problem)
                self.in_order = False
                row.left = loader_rows.shut_down(row.iterator, kill=True)
        finally:
            self.in_order = False
            self.copies.lane.clear()
            row.left += loader_rows.shut_down(row.iterator, kill=bool(row.error))
        row.report(last=True)
        return row.result()


class _Row:
    """A loader being measured."""

    def __init__(self, bench, order):
        self.bench = bench
        self.order = order
        self.iterator = None
        self.times = []
        self.batches = self.samples = 0
        self.error = ""
        self.restart_s = None
        self.pace = None, None
        self.left = 0
        self.stop = False
        self.ended = False

    def run(self, loader):
        """Takes batches until leat has seen enough, or there are no more."""
        copies = self.bench.copies
        t0 = said = now()
        self.iterator = iter(loader)
        while not self.stop:
            try:
                batch = next(self.iterator)
            except StopIteration:
                self.ended = True
                break
            copies.use(batch, self.order)
            t = now()
            self.times.append(t - t0)
            self.batches += 1
            self.samples += copies.count(batch, self.order)
            copies.keep(batch)
            if self.batches == self.order.get("batches"):
                break
            if t - said > _SAY_EVERY_S:
                said = t
                self.report()

    def report(self, last=False):
        if self.times:
            self.bench.say("batches", times=[round(t, 7) for t in self.times])
            self.times = []
        while not last:
            order = self.bench.hear(wait=False)
            if order is None:
                break
            self.stop = True
            if order["do"] == "end":
                loader_rows.shut_down(self.iterator, kill=True)
                leave()

    def restart(self, loader):
        """With workers that are kept: how long the first batch of another epoch takes."""
        stream = self.bench.copies.stream_of(loader)
        if not self.order["persistent_workers"] or stream is None:
            return
        stream.finish()
        for _ in self.iterator:  # what was under way
            pass
        stream.begin()
        t0 = now()
        next(iter(loader))
        self.restart_s = now() - t0

    def result(self):
        return {
            "batches": self.batches,
            "samples": self.samples,
            "restart_s": self.restart_s,
            "threads": self.pace[0],
            "ahead": self.pace[1],
            "batch_bytes": self.bench.copies.batch_bytes(),
            "left": self.left,
            "ended": int(self.ended),
            "error": self.error,
        }


class _Script:
    """What the script iterates over instead of its loader, in the parts that leat asks for."""

    def __init__(self, bench, order):
        self.bench = bench
        self.begin(order)

    def begin(self, order):
        self.part = (_Step if order["do"] == "step" else _Model)(self.bench, order)

    def passed_by(self):
        """The script turns to another loader: what it does with the first one has been seen."""
        if isinstance(self.part, _Step) and not self.bench.obeying:
            self.go_on()

    def go_on(self):
        self.part.end()
        self.begin(self.bench.obey())

    def __iter__(self):
        self.part.rewind()
        return self

    def __len__(self):
        return len(self.bench.modelling)

    def __next__(self):
        if self.part.is_over():
            self.go_on()
        return self.part.next()


class _Step:
    """A batch of the user's own loader, and how the script brings it to its device."""

    def __init__(self, bench, order):
        self.bench = bench
        self.watch = device_copies.Watch(bench.torch)
        self.given = 0

    def rewind(self):
        pass

    def is_over(self):
        self.watch.end()  # also where it goes on: the next batch is watched anew
        return self.given >= _MOST_FIRST or bool(self.watch.copies)

    def next(self):
        copies = self.bench.copies
        batch = copies.cached({"pin_memory": copies.loader.pin_memory})
        self.watch.begin(batch)
        self.given += 1
        return batch

    def end(self):
        bench = self.bench
        self.watch.end()
        # A device that the script has not even woken up is none of its own.
        likely = bench.likely_way(bench.torch.cuda.is_initialized())
        bench.copies.go(self.watch.way() or likely)
        bench.say_way()


class _Model:
    """One batch, again and again. Where it lies on a device, a block of steps is timed with the
    device at rest at both ends; a step alone would only be its launch. On the CPU the clock runs from
    the moment the script has the batch to the moment it asks for the next."""

    def __init__(self, bench, order):
        import atexit

        self.bench = bench
        self.order = order
        self.spans = []
        self.given = None
        self.block = None  # when the device was at rest, before the first step that counts
        self.block_s = None
        self.began = now()
        self.pid = os.getpid()
        atexit.register(self.report, "the script made no further steps")

    def rewind(self):
        self.given = None
        self.block = None  # what a script does between two epochs is none of its steps

    def is_over(self):
        return False

    def next(self):
        t = now()
        if self.given is not None:
            self.spans.append(t - self.given)
            if self.enough(t):
                self.synchronise()
                self.spans[-1] += now() - t
                if self.block is not None:
                    self.block_s = now() - self.block
                self.report("")
                leave()
        batch = self.bench.copies.cached(self.order)
        if len(self.spans) == self.warm():
            self.synchronise()
            self.block = self.began = now()
        self.given = now()
        return batch

    def warm(self):
        """Steps to leave out: the first few allocate, compile and choose kernels, however long."""
        return 3

    def enough(self, t):
        kept = len(self.spans) - self.warm()
        return kept >= self.order["steps"] or (kept >= 3 and t - self.began > self.order["seconds"])

    def synchronise(self):
        device_copies.synchronise(self.bench.torch, self.bench.copies.way.device)

    def report(self, error):
        if os.getpid() != self.pid or self.bench.socket is None:
            return
        spans = self.spans[self.warm() :] or self.spans[1:]
        whole = self.block_s if self.bench.copies.way.device is not None else None
        self.bench.say(
            "model",
            steps=len(spans),
            step_s=(sum(spans) if whole is None else whole) / len(spans) if spans else None,
            samples=self.bench.copies.cached_count(),
            error=error if not spans else "",
        )
        self.bench.socket.close()
        self.bench.socket = None


class _Handlers:
    """Signals while we serve: Ctrl-C is leat's affair, SIGUSR2 ends the order under way."""

    def __init__(self, bench):
        self.old = {}

        def wake(number, frame):
            if bench.in_order:
                bench.in_order = False
                raise _Abandoned

        for number, handler in ((signal.SIGINT, signal.SIG_IGN), (signal.SIGUSR2, wake)):
            try:
                self.old[number] = signal.signal(number, handler)
            except ValueError:  # not the main thread: it cannot be woken, only ended
                pass

    def restore(self):
        for number, handler in self.old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_child():
    """In a worker, or another process of multiprocessing, nothing is taken over."""
    import multiprocessing

    return multiprocessing.parent_process() is not None


def leave():
    """Ends the process at once, and its workers: nothing of the script runs any more."""
    import multiprocessing

    for child in multiprocessing.active_children():
        try:
            child.kill()
        except Exception:
            pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(0)
