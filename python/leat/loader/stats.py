"""What leat.DataLoader.stats() returns, and the counters that it is made of.

A loader uses one engine for all its epochs, but makes another one while two iterators are open, and
when its arguments have changed. So its figures are sums over engines: the last figures of those that
are closed, and the present figures of those that exist.
"""

import threading
import weakref

# Figures of an engine that are summed over all engines of a loader, closed ones included.
TOTALS = (
    "batches samples bytes waits wait_ns help_ns order_ns read_ns layout_ns idle_ns ready_sum "
    "errors full pace_changes"
).split()
# Figures of the engines that exist now.
CURRENT = "threads ahead slots slots_held slot_bytes memory_bytes memory_most_bytes".split()


class LoaderCounters:
    """A loader's counters: batches that torch made, and the figures of its engines."""

    def __init__(self):
        self.batches = 0  # made by torch
        self.wait_ns = 0
        self.closed = dict.fromkeys(TOTALS, 0)
        self.closed_elapsed_ns = 0
        self.closed_errors = []
        self.engines = weakref.WeakSet()
        # An engine is counted either here or in `closed`. Reentrant: the garbage collector may
        # close an engine in any thread at any time.
        self.lock = threading.RLock()

    def add_closed(self, core):
        """Adds the last figures of an engine that is being closed. The caller holds the lock."""
        figures = core.stats()
        for name in TOTALS:
            self.closed[name] += figures[name]
        self.closed_elapsed_ns += figures["elapsed_ns"]
        self.closed_errors += core.errors(0)

    def stats(self):
        """Stats up to now. It may be called from any thread."""
        with self.lock:
            open_cores = [engine.core for engine in list(self.engines) if engine.core is not None]
            figures = [core.stats() for core in open_cores]
            errors = list(self.closed_errors)
            for core in open_cores:
                errors += core.errors(0)
            totals = {name: self.closed[name] + sum(f[name] for f in figures) for name in TOTALS}
            elapsed_ns = self.closed_elapsed_ns + sum(f["elapsed_ns"] for f in figures)
        totals["batches"] += self.batches
        totals["wait_ns"] += self.wait_ns
        current = {name: sum(f[name] for f in figures) for name in CURRENT}
        return Stats(totals, current, elapsed_ns, errors, figures[-1]["pace"] if figures else None)

    def threads(self):
        """(number of threads, reason for it) of one engine that exists, or None."""
        with self.lock:
            for engine in list(self.engines):
                if engine.core is not None:
                    figures = engine.core.stats()
                    return figures["threads"], figures["pace"]
        return None


class Stats:
    """Figures since the loader was made.

    batches, samples, bytes     delivered to the training
    elapsed_s                   time since an engine's first start, summed over the engines
    samples_per_s               samples / elapsed_s
    waits                       requests that found no batch ready
    wait_s                      time that the training waited in them
    help_s                      part of wait_s in which the training's own thread made the batch
    order_s, read_s, layout_s   work of the stages, summed over the threads
    idle_s                      time without work, summed over the threads
    ready_mean                  batches that a request found ready, mean over all requests
    full                        requests that found every slot held by the training
    bad_samples                 samples that could not be read
    errors                      (epoch, index, reason) of each of them
    pace_changes                how often the next two figures were changed

    Now:

    threads, ahead              threads; batches that are made ahead
    pace                        the reason for these two; None without an engine
    slots, slots_held           batch slots; those that the training holds
    slot_bytes                  size of the largest slot so far
    memory_bytes                memory of all slots
    memory_most_bytes           the limit on it

    Of batches that torch makes only `batches` and `wait_s` are counted.
    """

    def __init__(self, totals, current, elapsed_ns, errors, pace):
        self.batches = totals["batches"]
        self.samples = totals["samples"]
        self.bytes = totals["bytes"]
        self.elapsed_s = elapsed_ns / 1e9
        self.samples_per_s = self.samples / self.elapsed_s if elapsed_ns else float("nan")
        self.waits = totals["waits"]
        self.wait_s = totals["wait_ns"] / 1e9
        self.help_s = totals["help_ns"] / 1e9
        self.order_s = totals["order_ns"] / 1e9
        self.read_s = totals["read_ns"] / 1e9
        self.layout_s = totals["layout_ns"] / 1e9
        self.idle_s = totals["idle_ns"] / 1e9
        self.ready_mean = totals["ready_sum"] / self.batches if self.batches else float("nan")
        self.full = totals["full"]
        self.bad_samples = totals["errors"]
        self.errors = errors
        self.pace_changes = totals["pace_changes"]
        self.pace = pace
        for name in CURRENT:
            setattr(self, name, current[name])

    def __str__(self):
        return "\n".join(
            (
                f"batches  {self.batches}, {self.samples} samples, {self.bytes / 1e6:.1f} MB",
                f"waited   {self.wait_s:.3f} s for {self.waits} of them",
                f"stages   order {self.order_s:.3f} s, read {self.read_s:.3f} s, "
                f"layout {self.layout_s:.3f} s, idle {self.idle_s:.3f} s",
                f"threads  {self.threads}, {self.ahead} batches ahead; {self.pace or 'no engine'}",
                f"memory   {self.slots} slots, {self.memory_bytes / 1e6:.1f} MB "
                f"of at most {self.memory_most_bytes / 1e6:.1f}",
                f"errors   {self.bad_samples}",
            )
        )

    def __repr__(self):
        return f"<stats: {self.batches} batches, waited {self.wait_s:.3f} s>"
