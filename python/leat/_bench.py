"""The part of `leat bench` that is in the user's process: it does as it is told.

When the training loader is iterated for the first time, this takes over: it connects to leat, tells
about the loader, and then obeys one order after the other (lines of JSON):

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

from leat import _bench_call, _bench_loader, _patch

now = time.perf_counter
_SAY_EVERY_S = 0.05

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
            _patch.patch(DataLoader, "__init__", _make_init)
            _patch.patch(DataLoader, "__iter__", _make_iter)
    except Exception:
        pass


def _make_init(original):
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not _state.serving:
            _bench_call.remember(self, args, kwargs)

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
    _state.take_over(loader)


class _Bench:
    def __init__(self, torch, address):
        self.torch = torch
        self.address = address
        self.which = int(os.environ.get("LEAT_BENCH_LOADER") or 0)
        self.seen = []  # loaders that were iterated, for --loader
        self.serving = False
        self.modelling = None  # the loader that is given a cached batch
        self.socket = None
        self.heard = b""
        self.in_order = False  # SIGUSR2 may end what is going on

    # ---- when --------------------------------------------------------------------------------

    def wants(self, loader):
        """Whether this iteration is the one to take over."""
        if self.modelling is loader:
            return True
        if self.serving or not self.address or _is_child():
            return False
        if not self.which:
            return self.torch.is_grad_enabled()
        if not any(known is loader for known in self.seen):
            self.seen.append(loader)
        return len(self.seen) == self.which and self.seen[-1] is loader

    def take_over(self, loader):
        if self.modelling is not None:
            return self.modelled
        self.serving = True
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(self.address)
        except OSError:  # leat is gone, or serves another rank: this one goes on as ever
            self.address = ""
            self.serving = False
            return iter(loader)
        before = _Handlers(self)
        random = _bench_loader.Random(self.torch, loader)
        self.copies = _bench_loader.Copies(self.torch, loader)
        self.say("hello", **_bench_call.describe(self.torch, loader, self.copies))
        order = self.serve()
        before.restore()
        random.restore()
        self.modelling = loader
        self.modelled = _Model(self, order)
        return self.modelled

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
        """Obeys until told to let the script go on, with a cached batch."""
        while True:
            order = self.hear(wait=True)
            if order["do"] == "samples":
                self.say("samples", **self.time_samples(order))
            elif order["do"] == "measure":
                self.say("row", **self.measure(order))
            elif order["do"] == "model":
                return order
            elif order["do"] == "end":
                leave()

    # ---- orders ------------------------------------------------------------------------------

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
            error = _bench_call.one_line(problem)
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
        except _Abandoned:
            row.error = _bench_loader.how_died(row.iterator) or "abandoned"
        except Exception as problem:
            row.error = _bench_call.one_line(problem)
            if row.iterator is None:
                # A worker died while the iterator was still being made. When that goes, with this
                # exception, it would wait five seconds for each of the others.
                row.iterator = _bench_loader.half_made(problem)
                self.in_order = False
                row.left = _bench_loader.shut_down(row.iterator, kill=True)
        finally:
            self.in_order = False
            row.left += _bench_loader.shut_down(row.iterator, kill=bool(row.error))
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
                _bench_loader.shut_down(self.iterator, kill=True)
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
            "batch_bytes": self.bench.copies.batch_bytes(),
            "left": self.left,
            "ended": int(self.ended),
            "error": self.error,
        }


class _Model:
    """What the script iterates over instead of its loader: one batch, again and again. The clock
    runs from the moment it has the batch to the moment it asks for the next."""

    def __init__(self, bench, order):
        import atexit

        self.bench = bench
        self.order = order
        self.spans = []
        self.given = None
        self.began = now()
        self.pid = os.getpid()
        atexit.register(self.report, "the script made no further steps")

    def __iter__(self):
        self.given = None
        return self

    def __len__(self):
        return len(self.bench.modelling)

    def __next__(self):
        t = now()
        if self.given is not None:
            self.spans.append(t - self.given)
            if self.enough(t):
                self.synchronise()
                self.spans[-1] += now() - t
                self.report("")
                leave()
        batch = self.bench.copies.cached(self.order)
        if len(self.spans) == self.warm():
            self.synchronise()
        self.given = now()
        return batch

    def warm(self):
        """Steps to leave out: the first few allocate, compile and choose kernels."""
        return 3

    def enough(self, t):
        kept = len(self.spans) - self.warm()
        return kept >= self.order["steps"] or (kept >= 3 and t - self.began > self.order["seconds"])

    def synchronise(self):
        if self.bench.copies.accelerator:
            self.bench.torch.cuda.synchronize()

    def report(self, error):
        if os.getpid() != self.pid or self.bench.socket is None:
            return
        spans = self.spans[self.warm() :] or self.spans[1:]
        self.bench.say(
            "model",
            steps=len(spans),
            step_s=sum(spans) / len(spans) if spans else None,
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
