#!/usr/bin/env python3
"""Checks the GPU clock on this GPU, and measures its cost. Prints a table;
exits with 1 when a row is MISSED, with 2 without a GPU.

    tools/gpu-clock.py [BUILD_FOLDER] [--no-cost | --only-cost]    # needs PyTorch with CUDA; of leat: leat and python/

Stalls of 1, 5 and 50 ms are added to each phase of a training that waits for its loss in every step.
The true time does not come from leat: it is the time between two events right before and right after
each stall, recorded by functions of the driver that leat does not see, less the time between two
such events with nothing between them. leat's idle time in that phase, less that of the same steps
without the pause, must be the same within 5 %, by the median of the followed steps.

Further checks:
  timeline   by torch's profiler (CUPTI): for 1 ms, leat's idle time must be at least the stall, and
             at most the gap between two kernels
  loader     a slow loader hidden behind compute must show no idle time; one that is not hidden must
  launches   kernels that are too small for their launches, and large ones: the true time is that of
             kernels and copies in the profiler; leat, which samples, may report less idle time, but
             not more
  cost       a step of many small kernels, in processes that remove leat's hooks and restore them
"""

import ctypes
import itertools
import json
import math
import os
import pathlib
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BAR = 0.05
HIDDEN_BAR = 0.01
SMALL_BARS = (-0.30, 0.05)  # idle time of small kernels, as a share, against the true one
LARGE_BAR = 0.02  # idle time between launches of large kernels
EVENTS = 64  # pairs; a step needs one
COST_BAR = 0.02
COST_PROCESSES, COST_PAIRS = 8, 125
STALLS_MS = {1: 500, 5: 80, 50: 12}  # stall: steps
QUIET_STEPS = 500
TIMELINE_STEPS = 300
PLACES = {"input": "input", "forward": "forward", "backward": "backward",
          "optimizer": "optimizer", "between steps": "other"}  # fmt: skip


def phases():
    text = (ROOT / "src" / "record" / "probe_abi.h").read_text(encoding="utf-8")
    block = text[text.index("#define LEAT_CLOCK_PHASES(X)") : text.index("enum leat_clock_phase")]
    return re.findall(r'X\(\w+, "(\w+)"\)', block)


def clock_share():
    """The share of the time that the clock may cost."""
    text = (ROOT / "src" / "probe" / "gpu_clock.c").read_text(encoding="utf-8")
    return 1 / int(re.search(r"COST_SHARE = (\d+)", text).group(1))


# ---- inside `leat run` ---------------------------------------------------------------------------


class Total(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("n", "device_ns", "idle_ns", "hidden_ns")]


class Clock:
    """What the probe has measured since the last call."""

    def __init__(self):
        self.names = phases()
        self.read = ctypes.CDLL(None).leat_probe_clock
        self.last = self.now()

    def now(self):
        totals = (Total * len(self.names))()
        self.read(len(self.names), totals)
        return totals

    def between(self, before, after):
        fields = [name for name, _ in Total._fields_]
        return {k: [getattr(b, field) - getattr(a, field) for field in fields]
                for k, a, b in zip(self.names, before, after)}  # fmt: skip

    def since(self):
        before, self.last = self.last, self.now()
        return self.between(before, self.last)


class Stall:
    """Where the training sleeps, and how long. Its events are recorded by functions of the driver that the
    probe does not see, so they do not affect leat. All names are resolved beforehand: after a sleep
    each line of Python is slow, and the GPU is idle meanwhile."""

    place, seconds = None, 0

    def __init__(self, torch):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.record = self.driver.cuEventRecord
        self.ask = ctypes.CDLL(None).cudaGetDevice  # the probe sees this call
        self.answer = ctypes.byref(ctypes.c_int())
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.pairs = [(ctypes.c_void_p(), ctypes.c_void_p()) for _ in range(EVENTS)]
        self.slept = []  # from, to: ns of the host
        for event in (event for pair in self.pairs for event in pair):
            self.must("cuEventCreate", ctypes.byref(event), 0)
        for _ in range(EVENTS):
            self.begin()
            self.end()
        self.empty_ms = 0
        self.empty_ms = statistics.median(self.apart(pair) for pair in self.pairs)

    def must(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with {result}")

    def settle(self):
        self.must("cuStreamSynchronize", self.stream)

    def apart(self, pair):
        self.settle()
        ms = ctypes.c_float()
        self.must("cuEventElapsedTime", ctypes.byref(ms), *pair)
        return ms.value - self.empty_ms

    def begin(self):
        self.pairs.append(self.pairs.pop(0))
        self.record(self.pairs[-1][0], self.stream)

    def end(self):
        self.record(self.pairs[-1][1], self.stream)

    def __call__(self, place):
        """For leat the gap lasts from the last CUDA call before it to the first after it: both are made
        here, as near as possible to the events of the true time."""
        if place != self.place:
            return
        record, ask, answer, stream, sleep = (
            self.record,
            self.ask,
            self.answer,
            self.stream,
            time.sleep,
        )
        pair = self.pairs.pop(0)
        self.pairs.append(pair)
        before = time.time_ns()
        ask(answer)
        record(pair[0], stream)
        if self.seconds:
            sleep(self.seconds)
        record(pair[1], stream)
        ask(answer)
        self.slept.append((before, time.time_ns()))

    def last_ms(self):
        """How long the device was idle in the last one."""
        return self.apart(self.pairs[-1])


def make_training(torch, stall, width, layers):
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, i):
            if stall.place == "input" and stall.seconds:
                before = time.time_ns()
                time.sleep(stall.seconds)
                stall.slept.append((before, time.time_ns()))
            return torch.ones(width)

    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    first, last = nn.Sequential(*blocks[: layers // 2]), nn.Sequential(*blocks[layers // 2 :])
    model = nn.Sequential(first, last).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer.register_step_pre_hook(lambda *_: stall("optimizer"))
    last.register_full_backward_hook(lambda *_: stall("backward"))
    batches = iter(DataLoader(Rows(), batch_size=None))
    work = torch.ones(4096, width, device="cuda")

    def step(wait, begun=lambda: None):
        if stall.place == "input":  # a call of CUDA inside next() would be work for the device
            stall.begin()
            x = next(batches)
            stall.end()
        else:
            x = next(batches)
        begun()
        x = x.cuda()
        y = first(work + x)
        stall("forward")
        loss = last(y).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if wait:
            loss.item()
        stall("between steps")

    return step


def followed_steps(stall, clock, step, steps):
    """Of the steps that leat has followed: the true time and leat's idle time by phase, in ms per step.
    leat's totals of a step are complete when the next one has its batch: what follows the optimizer may
    not belong to a step. The true time is read at that moment too, also without a stall: reading it
    takes time, and the device is idle meanwhile."""
    readings, truths, slept = [], [], []

    def read():
        stall.settle()  # the device has finished the step before
        readings.append(clock.now())
        truths.append(stall.last_ms() * (stall.place is not None))
        slept.append(stall.slept[-1] if stall.slept else None)

    for i in range(8 + steps + 1):
        step(True, read if i >= 8 else lambda: None)
    gains = [clock.between(before, after) for before, after in zip(readings, readings[1:])]
    # each step waits once for a batch
    is_followed = [gained["input"][0] > 0 for gained in gains]
    followed = list(itertools.compress(zip(truths[1:], gains), is_followed))
    truth = middle(ms for ms, _ in followed)
    # The same steps of leat and of the true time, and the median: when another program stops the host
    # between two calls, the step is idle there too, but not because of the stall.
    idle = {k: truth + middle(gained[k][2] / 1e6 - ms for ms, gained in followed)
            for k in clock.names}  # fmt: skip
    return {
        "truth": truth,
        "idle": idle,
        "n": len(followed),
        "slept": list(itertools.compress(slept[1:], is_followed)),
    }


def middle(values):
    values = list(values)
    return statistics.median(values) if values else 0


def timeline(torch, stall, clock, step, steps):
    """The same by the device's own timeline: in ms, the stalls of the steps that leat has followed and the
    gaps between two kernels that they lie in."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(8):
            step(True)
        stall.slept.clear()
        got = followed_steps(stall, clock, step, steps)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    at = trace.get("baseTimeNanoseconds", 0)
    work = sorted((e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"]
                  if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))  # fmt: skip
    gaps, end = [], work[0][1]
    for begins, ends in work:
        gaps.append((at + 1e3 * end, at + 1e3 * begins))
        end = max(end, ends)
    around = [(b - a, d - c) for a, b in got["slept"] for c, d in gaps if c < (a + b) / 2 < d]
    slept, gap = (middle(x) / 1e6 for x in zip(*around or [(0, 0)]))
    return {**got, "slept": slept, "gap": gap, "found": len(around)}


def block(torch, clock, step, steps):
    """Device time per step in ms, and leat's figures for it. Steps before and after the block are alike,
    so what leat reads late, or learns first, is the same."""
    for _ in range(8):
        step(False)
    clock.since()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(steps):
        step(False)
    end.record()
    step(False)  # leat reads its events when a step begins
    gained = clock.since()
    torch.cuda.synchronize()
    followed = gained["input"][0] or 1
    return {
        "step": begin.elapsed_time(end) / steps,
        "idle": {k: v[2] / followed / 1e6 for k, v in gained.items()},
        "hidden": {k: v[3] / followed / 1e6 for k, v in gained.items()},
        "share": min(1, followed / steps),
        "all_idle": sum(v[2] for v in gained.values()) / sum(v[1] for v in gained.values()),
        "launch_idle": gained["launch"][2] / sum(v[1] for v in gained.values()),
    }


def busy_ms(torch, step, steps):
    """The time of a step's kernels and copies, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step(False)
        torch.cuda.synchronize()
    return sum(e.self_device_time_total for e in profiler.key_averages()) / steps / 1e3


def child_stalls():
    import torch

    clock, stall = Clock(), Stall(torch)
    answer = {"stalls": [], "quiet": {}, "timeline": []}
    training = make_training(torch, stall, 512, 6)
    for _ in range(20):
        training(True)
    for place in PLACES:
        for ms, steps in STALLS_MS.items():
            stall.place, stall.seconds = place, ms / 1000
            got = followed_steps(stall, clock, training, steps)
            answer["stalls"].append((place, ms, got))
        stall.seconds = 0  # the same calls of CUDA, but no pause between them
        answer["quiet"][place] = followed_steps(stall, clock, training, QUIET_STEPS)
        stall.place = None
    heavy = make_training(torch, stall, 4096, 4)
    for _ in range(5):
        heavy(False)
    answer["heavy"] = block(torch, clock, heavy, 30)
    stall.place, stall.seconds = "input", answer["heavy"]["step"] / 4000
    answer["hidden"] = block(torch, clock, heavy, 30)
    stall.seconds = answer["heavy"]["step"] / 500
    answer["exposed"] = block(torch, clock, heavy, 30)
    stall.place = None
    small = make_training(torch, stall, 32, 30)
    for _ in range(20):
        small(False)
    for name, step, steps in (("small", small, 2000), ("large", heavy, 100)):
        answer[name] = block(torch, clock, step, steps)
        answer[name]["busy"] = busy_ms(torch, step, 10)
    for place in PLACES:  # last: the profiler slows all that follows
        stall.place, stall.seconds = place, 0.001
        answer["timeline"].append((place, timeline(torch, stall, clock, training, TIMELINE_STEPS)))
        stall.place = None
    print(json.dumps(answer))


# ---- outside -------------------------------------------------------------------------------------


def child(mode, leat=None, folder=None):
    words = [sys.executable, __file__, mode]
    if leat:
        words = [
            leat,
            "run",
            "-q",
            "--logs-dir",
            folder,
            "--run-name",
            mode.strip("-"),
            "--",
            *words,
        ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{mode} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


class Table:
    WORDS = {True: "held", False: "MISSED", None: "open"}  # None: not decided

    def __init__(self):
        self.results = []

    def row(self, what, held, text):
        self.results.append(held)
        print(f"  {what:<24} {self.WORDS[held]:<6}  {text}", flush=True)

    def end(self):
        missed, unknown = (self.results.count(result) for result in (False, None))
        if missed:
            print(f"{missed} rows MISSED")
        else:
            print("all rows held" + f" but {unknown} that cannot be told" * (unknown > 0))
        return 1 if missed else 0


def quiet_idle(answer, place):
    """Idle time of the phase without a stall, less the part that the true time has too: for input all of
    next(), elsewhere almost nothing."""
    quiet = answer["quiet"][place]
    return quiet["idle"][PLACES[place]] - quiet["truth"]


def check_stalls(table, answer):
    for place, ms, got in answer["stalls"]:
        truth, idle = got["truth"], got["idle"][PLACES[place]] - quiet_idle(answer, place)
        error = (idle - truth) / truth if got["n"] else math.inf
        table.row(f"{ms} ms in {place}", abs(error) <= BAR,
                  f"truth {truth:.3f} ms, leat {idle:.3f} ms ({error:+.1%}); "
                  f"{got['n']} steps followed")  # fmt: skip


def check_timeline(table, answer):
    for place, got in answer["timeline"]:
        slept, gap, idle = got["slept"], got["gap"], got["idle"][PLACES[place]]
        idle -= quiet_idle(answer, place)
        held = got["n"] > 0 and got["found"] > 0 and slept * (1 - BAR) <= idle <= gap * (1 + BAR)
        table.row(f"timeline, {place}", held,
                  f"stall {slept:.3f} ms, between kernels {gap:.3f} ms, leat {idle:.3f} ms; "
                  f"{got['n']} steps followed")  # fmt: skip


def check_loader(table, answer):
    step, got = answer["heavy"]["step"], answer["hidden"]
    idle = got["idle"]["input"]
    table.row("slow loader, hidden", idle <= HIDDEN_BAR * got["step"] and got["hidden"]["input"] > 0,
              f"step {got['step']:.2f} ms, waits {step / 4:.2f} ms: idle {idle:.3f} ms, "
              f"hidden {got['hidden']['input']:.2f} ms")  # fmt: skip
    got = answer["exposed"]
    truth, idle = got["step"] - step, got["idle"]["input"] - answer["heavy"]["idle"]["input"]
    table.row("slow loader, exposed", abs(idle - truth) <= BAR * truth,
              f"waits {2 * step:.2f} ms: truth {truth:.3f} ms, leat {idle:.3f} ms")  # fmt: skip


def check_launches(table, answer):
    got = answer["small"]
    truth, idle = 1 - got["busy"] / got["step"], got["all_idle"]
    table.row("small kernels", SMALL_BARS[0] <= idle - truth <= SMALL_BARS[1],
              f"step {got['step']:.2f} ms, at work {got['busy']:.2f} ms: idle truth {truth:.1%}, "
              f"leat {idle:.1%}, {got['launch_idle']:.1%} between launches; "
              f"{got['share']:.0%} followed")  # fmt: skip
    got = answer["large"]
    truth = 1 - got["busy"] / got["step"]
    table.row("large kernels", got["launch_idle"] <= LARGE_BAR,
              f"step {got['step']:.2f} ms, at work {got['busy']:.2f} ms: idle truth {truth:.1%}, "
              f"leat {got['all_idle']:.1%}, {got['launch_idle']:.1%} between launches")  # fmt: skip


def check_database(table, folder):
    path = pathlib.Path(folder) / "stalls" / "run.db"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        rows = dict(db.execute("SELECT phase, idle_ns FROM gpu_clock WHERE idle_ns > 0").fetchall())
    table.row("run.db", set(PLACES.values()) <= set(rows),
              ", ".join(f"{k} {v / 1e9:.2f} s" for k, v in rows.items()))  # fmt: skip
    text = (path.parent / "final_summary.txt").read_text()
    line = [line for line in text.splitlines() if line.startswith("- GPU clock")]
    table.row("report", len(line) == 1, line[0] if line else "no line")


def cost_holds(middle, error):
    """None where the bar lies within what the measurement is uncertain by."""
    return None if abs(middle - COST_BAR) < error else middle <= COST_BAR


def cost_of_a_process(build, folder, number):
    """[(ms without leat, ms with it)] of adjacent steps, in one process that removes leat's hooks and
    restores them."""
    done = subprocess.run(
        [build / "leat", "run", "-q", "--logs-dir", folder, "--run-name", f"cost{number}", "--",
         sys.executable, ROOT / "bench" / "workloads" / "small_kernels.py", str(COST_PAIRS)],
        capture_output=True, text=True, timeout=300)  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"small_kernels.py failed:\n{done.stdout}{done.stderr}")
    got = json.loads(done.stdout.splitlines()[-1])
    if got["entries"] == 0:
        sys.exit("small_kernels.py found no call of CUDA that goes through the probe.")
    if os.environ.get("OUT"):
        pathlib.Path(os.environ["OUT"], f"gpu-cost{number}.json").write_text(json.dumps(got))
    return got["pairs"]


def check_cost(table, build, folder):
    processes = [cost_of_a_process(build, folder, i) for i in range(COST_PROCESSES)]
    # A step that the clock follows costs more, but one in twenty does not change the median: the share
    # that the clock may cost is added.
    added = [statistics.median(with_leat / without - 1 for without, with_leat in pairs) + clock_share()
             for pairs in processes]  # fmt: skip
    middle, error = statistics.mean(added), statistics.stdev(added) / math.sqrt(len(added))
    plain = statistics.median(ms for pairs in processes for ms, _ in pairs)
    table.row("cost, many kernels", cost_holds(middle, error),
              f"with leat {middle:+.2%} +- {error:.2%}, the clock's {clock_share():.2%} among it; {len(added)} processes "
              f"with and without it by turns ({min(added):+.2%} .. {max(added):+.2%}); "
              f"{plain:.2f} ms a step without")  # fmt: skip


def main():
    if "--stalls" in sys.argv:
        return child_stalls()
    folders = [word for word in sys.argv[1:] if not word.startswith("--")]
    build = pathlib.Path(folders[0] if folders else ROOT / "build").resolve()
    ask = "import torch; print(torch.__version__, torch.cuda.get_device_name())"
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    if asked.returncode != 0 or not (build / "leat").exists():
        print("This needs PyTorch with a CUDA device, and leat: nothing to try.")
        return 2
    print(asked.stdout.strip())
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        if "--only-cost" not in sys.argv:
            answer = child("--stalls", build / "leat", folder)
            if os.environ.get("OUT"):
                pathlib.Path(os.environ["OUT"], "gpu-clock.json").write_text(json.dumps(answer))
            check_stalls(table, answer)
            check_timeline(table, answer)
            check_loader(table, answer)
            check_launches(table, answer)
            check_database(table, folder)
        if "--no-cost" not in sys.argv:
            check_cost(table, build, folder)
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
