"""The part of `leat bench` in the user's process.

It takes over when the training loader is iterated for the first time: it connects to leat,
describes the loader, and runs leat's orders one after the other (lines of JSON):

    step      let the script make a step, and watch how it copies the batch to its device
    samples   time single samples, in this process
    measure   make a loader from the user's with other settings, report when each batch comes
    model     give the script one batch again and again, and time its steps; then end
    end       end

The loaders that are measured read their indices from one endless stream of the user's sampler, so
no row reads data that an earlier row has brought into the page cache. The random state is restored.
The process ends without running another line of the script: it must not save or evaluate a model
that was trained on one batch.
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
_REPORT_INTERVAL_S = 0.05
# Batches given to the script until it copies one. It may only inspect the first, or fetch ahead.
_MAX_FIRST_BATCHES = 4

_bench = None  # the one _Bench of this process


class _OrderAborted(BaseException):
    """leat ends the current order. Not an Exception: a dataset may catch those."""


def install(torch):
    """Called when torch has been imported. Never raises."""
    try:
        from torch.utils.data import DataLoader

        global _bench
        if _bench is None:
            _bench = _Bench(torch, os.environ.get("LEAT_BENCH", ""))
            patch.patch(DataLoader, "__init__", _make_init)
            patch.patch(DataLoader, "__iter__", _make_iter)
    except Exception:
        pass


def _make_init(original):
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not _bench.connected:
            loader_call.remember(self, args, kwargs)

    return __init__


def _make_iter(original):
    def __iter__(self):
        if _bench.takes_over(self):
            return _bench.take_over(self)
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
    _bench.take_over(loader, from_factory=True)


class _Bench:
    def __init__(self, torch, address):
        self.torch = torch
        self.address = address
        self.which = int(os.environ.get("LEAT_BENCH_LOADER") or 0)
        self.seen = []  # loaders that were iterated, for --loader
        self.connected = False
        self.replaced_loader = None  # the loader that is replaced by ...
        self.script = None  # ... this _Script
        self.running_orders = False
        self.socket = None
        self.received = b""
        self.in_order = False  # SIGUSR2 may end the current order

    # ---- taking over -------------------------------------------------------------------------

    def takes_over(self, loader):
        """Whether this iteration is the one to take over."""
        if self.replaced_loader is loader and not self.running_orders:
            return True
        if self.script is not None and not _is_child() and self.torch.is_grad_enabled():
            self.script.other_loader_iterated()
        if self.connected or not self.address or _is_child():
            return False
        if not self.which:
            return self.torch.is_grad_enabled()
        if not any(known is loader for known in self.seen):
            self.seen.append(loader)
        return len(self.seen) == self.which and self.seen[-1] is loader

    def take_over(self, loader, from_factory=False):
        if self.script is not None:
            return self.script
        self.connected = True
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(self.address)
        except OSError:  # leat has ended, or measures another rank: this one continues normally
            self.address = ""
            self.connected = False
            return iter(loader)
        self.variants = loader_rows.LoaderVariants(self.torch, loader)
        self.variants.set_method(self.known_method(loader) or self.likely_method(from_factory))
        self.loader = loader
        self.send("hello", **loader_call.describe(self.torch, loader, self.variants))
        order = self.run_orders()
        self.replaced_loader = loader
        self.script = _Script(self, order)
        return self.script

    def known_method(self, loader):
        """The method of a loader that brings its batches to the device itself."""
        device = getattr(loader, "device", None) if self.variants.is_made_by_leat() else None
        return device and device_copies.CopyMethod(device, None, device_copies.ALL)

    def likely_method(self, used):
        """The method if none was seen: to the current device, if the script uses it."""
        if not used or not self.variants.accelerator:
            return device_copies.CopyMethod()
        return device_copies.CopyMethod(self.torch.device("cuda", self.torch.cuda.current_device()))

    def run_orders(self):
        """Runs orders until one is for the script, which finds its state unchanged."""
        self.running_orders = True
        before = _Handlers(self)
        random = loader_rows.RandomState(self.torch, self.loader)
        order = self.wait_for_script_order()
        before.restore()
        random.restore()
        self.running_orders = False
        return order

    # ---- messages ----------------------------------------------------------------------------

    def send(self, event, **more):
        more["event"] = event
        try:
            self.socket.sendall(json.dumps(more).encode() + b"\n")
        except OSError:
            exit_now()  # leat has ended

    def receive(self, wait):
        """The next order; None if there is none and `wait` is false."""
        while b"\n" not in self.received:
            if not wait and not select.select([self.socket], [], [], 0)[0]:
                return None
            try:
                more = self.socket.recv(65536)
            except OSError:
                more = b""
            if not more:
                exit_now()
            self.received += more
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def wait_for_script_order(self):
        """Runs orders until one lets the script continue: for a step, or with one batch."""
        while True:
            order = self.receive(wait=True)
            if order["do"] == "step":
                error = self.first_batch()
                self.send("first", error=error)
                if not error:
                    return order
                self.variants.set_method(self.likely_method(self.torch.cuda.is_initialized()))
                self.send_method()
            elif order["do"] == "samples":
                self.send("samples", **self.time_samples(order))
            elif order["do"] == "measure":
                self.send("row", **self.measure(order))
            elif order["do"] == "model":
                return order
            elif order["do"] == "end":
                exit_now()

    # ---- orders ------------------------------------------------------------------------------

    def first_batch(self):
        """Keeps a batch of the user's own loader. Returns the error, or ""."""
        return self.measure(dict(self.variants.own(), batches=1))["error"]

    def send_method(self):
        self.send("step", **loader_call.describe_method(self.torch, self.variants))

    def time_samples(self, order):
        walls, cpus, error = [], [], ""
        end = now() + order["seconds"]
        try:
            self.in_order = True
            for get in self.variants.samples():
                w0, c0 = now(), time.process_time()
                get()
                cpus.append(time.process_time() - c0)
                walls.append(now() - w0)
                if len(walls) >= order["count"] or now() > end:
                    break
        except _OrderAborted:
            error = "hangs"
        except Exception as problem:
            error = loader_call.one_line(problem)
        finally:
            self.in_order = False
        n = len(walls)
        # Without the slowest tenth: those may have waited for another process's CPU time.
        trimmed = sorted(zip(walls, cpus))[: n - n // 10]
        walls.sort()
        return {
            "count": n,
            "mean_s": sum(walls) / n if n else None,
            "p99_s": walls[min(n - 1, int(0.99 * n))] if n else None,
            "calm_s": sum(wall for wall, _ in trimmed) / len(trimmed) if trimmed else None,
            "cpu_s": sum(cpu for _, cpu in trimmed) / len(trimmed) if trimmed else None,
            "error": error,
        }

    def measure(self, order):
        """Measures one row. Its workers are gone afterwards, also after an error."""
        row = _Row(self, order)
        try:
            self.in_order = True
            loader = self.variants.make(order)
            row.run(loader)
            row.restart(loader)
            row.pace = loader.chosen_settings() if order["leat"] else (None, None)
        except _OrderAborted:
            row.error = loader_rows.worker_exit(row.iterator) or "abandoned"
        except Exception as problem:
            row.error = loader_call.one_line(problem)
            if row.iterator is None:
                # A worker died while the iterator was made. The iterator's deletion would wait five
                # seconds for each of the other workers.
                row.iterator = loader_rows.unfinished_iterator(problem)
                self.in_order = False
                row.left = loader_rows.shut_down(row.iterator, kill=True)
        finally:
            self.in_order = False
            self.variants.transfers.clear()
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
        """Reads batches until leat has enough, or there are no more."""
        variants = self.bench.variants
        t0 = reported = now()
        self.iterator = iter(loader)
        while not self.stop:
            try:
                batch = next(self.iterator)
            except StopIteration:
                self.ended = True
                break
            variants.use(batch, self.order)
            t = now()
            self.times.append(t - t0)
            self.batches += 1
            self.samples += variants.count(batch, self.order)
            variants.keep(batch)
            if self.batches == self.order.get("batches"):
                break
            if t - reported > _REPORT_INTERVAL_S:
                reported = t
                self.report()

    def report(self, last=False):
        if self.times:
            self.bench.send("batches", times=[round(t, 7) for t in self.times])
            self.times = []
        while not last:
            order = self.bench.receive(wait=False)
            if order is None:
                break
            self.stop = True
            if order["do"] == "end":
                loader_rows.shut_down(self.iterator, kill=True)
                exit_now()

    def restart(self, loader):
        """With persistent workers: the time of the first batch of a second epoch."""
        stream = self.bench.variants.stream_of(loader)
        if not self.order["persistent_workers"] or stream is None:
            return
        stream.finish()
        for _ in self.iterator:  # batches that were requested before
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
            "batch_bytes": self.bench.variants.batch_bytes(),
            "left": self.left,
            "ended": int(self.ended),
            "error": self.error,
        }


class _Script:
    """What the script iterates instead of its loader."""

    def __init__(self, bench, order):
        self.bench = bench
        self.begin(order)

    def begin(self, order):
        self.part = (_Step if order["do"] == "step" else _Model)(self.bench, order)

    def other_loader_iterated(self):
        """The script iterates another loader: its step with this one is over."""
        if isinstance(self.part, _Step) and not self.bench.running_orders:
            self.run_next_orders()

    def run_next_orders(self):
        self.part.end()
        self.begin(self.bench.run_orders())

    def __iter__(self):
        self.part.rewind()
        return self

    def __len__(self):
        return len(self.bench.replaced_loader)

    def __next__(self):
        if self.part.is_finished():
            self.run_next_orders()
        return self.part.next()


class _Step:
    """Batches of the user's own loader, and how the script copies them to its device."""

    def __init__(self, bench, order):
        self.bench = bench
        self.watch = device_copies.CopyWatch(bench.torch)
        self.given = 0

    def rewind(self):
        pass

    def is_finished(self):
        self.watch.end()  # starts again with the next batch
        return self.given >= _MAX_FIRST_BATCHES or bool(self.watch.copies)

    def next(self):
        variants = self.bench.variants
        batch = variants.cached({"pin_memory": variants.loader.pin_memory})
        self.watch.begin(batch)
        self.given += 1
        return batch

    def end(self):
        bench = self.bench
        self.watch.end()
        # A device that the script has not initialised is not used by it.
        likely = bench.likely_method(bench.torch.cuda.is_initialized())
        bench.variants.set_method(self.watch.method() or likely)
        bench.send_method()


class _Model:
    """One batch again and again. On a device, a block of steps is timed with the device idle at
    both ends, since a single step would only be its launch. On the CPU a step lasts from when the
    script gets the batch until it asks for the next."""

    def __init__(self, bench, order):
        import atexit

        self.bench = bench
        self.order = order
        self.spans = []
        self.given = None
        self.block = None  # when the device was idle, before the first step that counts
        self.block_s = None
        self.began = now()
        self.pid = os.getpid()
        atexit.register(self.report, "the script made no further steps")

    def rewind(self):
        self.given = None
        self.block = None  # the time between two epochs is not a step

    def is_finished(self):
        return False

    def next(self):
        t = now()
        if self.given is not None:
            self.spans.append(t - self.given)
            if self.has_enough(t):
                self.synchronise()
                self.spans[-1] += now() - t
                if self.block is not None:
                    self.block_s = now() - self.block
                self.report("")
                exit_now()
        batch = self.bench.variants.cached(self.order)
        if len(self.spans) == self.warm():
            self.synchronise()
            self.block = self.began = now()
        self.given = now()
        return batch

    def warm(self):
        """Steps not counted: the first few allocate memory, compile and choose kernels."""
        return 3

    def has_enough(self, t):
        kept = len(self.spans) - self.warm()
        return kept >= self.order["steps"] or (kept >= 3 and t - self.began > self.order["seconds"])

    def synchronise(self):
        device_copies.synchronise(self.bench.torch, self.bench.variants.method.device)

    def report(self, error):
        if os.getpid() != self.pid or self.bench.socket is None:
            return
        spans = self.spans[self.warm() :] or self.spans[1:]
        whole = self.block_s if self.bench.variants.method.device is not None else None
        self.bench.send(
            "model",
            steps=len(spans),
            step_s=(sum(spans) if whole is None else whole) / len(spans) if spans else None,
            samples=self.bench.variants.cached_count(),
            error=error if not spans else "",
        )
        self.bench.socket.close()
        self.bench.socket = None


class _Handlers:
    """Signal handlers while orders run: Ctrl-C is for leat, SIGUSR2 ends the current order."""

    def __init__(self, bench):
        self.old = {}

        def abort(number, frame):
            if bench.in_order:
                bench.in_order = False
                raise _OrderAborted

        for number, handler in ((signal.SIGINT, signal.SIG_IGN), (signal.SIGUSR2, abort)):
            try:
                self.old[number] = signal.signal(number, handler)
            except ValueError:  # not the main thread: orders cannot be aborted
                pass

    def restore(self):
        for number, handler in self.old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _is_child():
    """Nothing is taken over in a worker or another process of multiprocessing."""
    import multiprocessing

    return multiprocessing.parent_process() is not None


def exit_now():
    """Ends the process and its workers at once; no further line of the script runs."""
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
