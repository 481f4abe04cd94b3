"""What leat.DataLoader says of itself: the plan before, the figures after."""

import threading
import weakref


class Plan:
    """What will run. `lowered` tells whether the engine makes the batches, `reasons` why not, and
    `rows` the parts as (part, what, where), where is 'C' or 'torch'; str() is for reading."""

    def __init__(self, title, rows, reasons=()):
        self.title = title
        self.rows = tuple(rows)
        self.reasons = tuple(reasons)
        self.lowered = not self.reasons

    def __str__(self):
        widest = max(len(what) for _, what, _ in self.rows)
        lines = [self.title]
        for part, what, where in self.rows:
            lines.append(f"  {part:<8} {what:<{widest}}  {where}".rstrip())
        if self.reasons:
            lines.append("  not in C:")
            lines += [f"    {reason}" for reason in self.reasons]
        return "\n".join(lines)

    def __repr__(self):
        return f"<plan: {'C' if self.lowered else 'torch'}, {self.title}>"


# Of an engine's figures, those that add up over engines.
SUMS = (
    "batches samples bytes waits wait_ns help_ns order_ns read_ns layout_ns idle_ns ready_sum "
    "errors full pace_changes"
).split()
NOW = "threads ahead slots slots_held slot_bytes memory_bytes memory_most_bytes".split()


class Counts:
    """What the loader's iterators and engines add up."""

    def __init__(self):
        self.batches = 0  # through torch
        self.wait_ns = 0
        self.ended = dict.fromkeys(SUMS, 0)  # engines that are no more
        self.ended_ns = 0
        self.errors = []
        self.running = weakref.WeakSet()
        # An engine is either counted while it runs or folded when it ends. Reentrant: the end may
        # come by the garbage collector, at any time.
        self.lock = threading.RLock()

    def fold(self, core):
        """The last figures of an engine. Lock held."""
        figures = core.stats()
        for name in SUMS:
            self.ended[name] += figures[name]
        self.ended_ns += figures["elapsed_ns"]
        self.errors += core.errors(0)

    def stats(self):
        with self.lock:
            live = [running.core for running in list(self.running) if running.core is not None]
            figures = [core.stats() for core in live]
            errors = list(self.errors)
            for core in live:
                errors += core.errors(0)
            sums = {name: self.ended[name] + sum(f[name] for f in figures) for name in SUMS}
            elapsed_ns = self.ended_ns + sum(f["elapsed_ns"] for f in figures)
        sums["batches"] += self.batches
        sums["wait_ns"] += self.wait_ns
        now = {name: sum(f[name] for f in figures) for name in NOW}
        return Stats(sums, now, elapsed_ns, errors, figures[-1]["pace"] if figures else None)

    def pace(self):
        """(threads, why) of an engine that is there; None: none is."""
        with self.lock:
            for running in list(self.running):
                if running.core is not None:
                    figures = running.core.stats()
                    return figures["threads"], figures["pace"]
        return None


class Stats:
    """Figures since the loader was made. Times are in seconds; those of stages are summed over the
    threads. What torch's own machinery does is not seen but for batches and wait_s."""

    def __init__(self, sums, now, elapsed_ns, errors, pace):
        self.batches = sums["batches"]
        self.samples = sums["samples"]
        self.bytes = sums["bytes"]
        self.elapsed_s = elapsed_ns / 1e9
        self.samples_per_s = self.samples / self.elapsed_s if elapsed_ns else float("nan")
        self.waits = sums["waits"]  # batches that were not ready when asked for
        self.wait_s = sums["wait_ns"] / 1e9
        self.help_s = sums["help_ns"] / 1e9  # of wait_s, what the consumer's core worked itself
        self.order_s = sums["order_ns"] / 1e9
        self.read_s = sums["read_ns"] / 1e9
        self.layout_s = sums["layout_ns"] / 1e9
        self.idle_s = sums["idle_ns"] / 1e9
        self.ready_mean = sums["ready_sum"] / self.batches if self.batches else float("nan")
        self.full = sums["full"]
        self.bad_samples = sums["errors"]
        self.errors = errors  # (epoch, index, what is wrong with it)
        self.pace_changes = sums["pace_changes"]  # how often threads or batches ahead were adapted
        self.pace = pace  # why they are as many as they are; None: no engine is there
        for name in NOW:
            setattr(self, name, now[name])

    def __str__(self):
        return "\n".join(
            (
                f"batches  {self.batches}, {self.samples} samples, {self.bytes / 1e6:.1f} MB",
                f"waited   {self.wait_s:.3f} s in {self.waits} of them",
                f"stages   order {self.order_s:.3f} s, read {self.read_s:.3f} s, "
                f"layout {self.layout_s:.3f} s, idle {self.idle_s:.3f} s",
                f"threads  {self.threads}, {self.ahead} batches ahead; {self.pace or 'none now'}",
                f"memory   {self.slots} slots, {self.memory_bytes / 1e6:.1f} MB "
                f"of at most {self.memory_most_bytes / 1e6:.1f}",
                f"errors   {self.bad_samples}",
            )
        )

    def __repr__(self):
        return f"<stats: {self.batches} batches, waited {self.wait_s:.3f} s>"
