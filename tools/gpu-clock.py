#!/usr/bin/env python3
"""Does the clock of the device tell the truth on this GPU, and what does it cost? Prints a table;
exits with 1 when a row is MISSED, with 2 when there is nothing to try it on.

    tools/gpu-clock.py [BUILD_FOLDER] [--no-cost | --only-cost]    # needs PyTorch with CUDA; of leat: leat and python/

Stalls of 1, 5 and 50 ms are put into each phase of a training that waits for its loss in every step.
The truth does not come from leat: it is the time between two events that stand right before and right
behind each stall, where leat does not know that there is one, less what two such events are apart with
nothing between them; part of a stall is hidden behind work that was queued before it. leat's
idle time in that phase must have grown by the same, within 5 %. Then a loader that is slow, but hidden
behind compute, must show no idle time; and one that is not hidden must. Then trainings of kernels that
are too small for their launches, and of large ones: the truth is what torch's profiler (CUPTI) says that
kernels and copies take, and leat, which takes samples, may tell less idle time, but not more. Last, a
step of many small kernels with leat and without.
"""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import random
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
SMALL_BARS = (-0.30, 0.05)  # idle time of small kernels, as a share, against the truth
LARGE_BAR = 0.02  # idle time between launches of large kernels
POOL = 200  # pairs of events; more than stalls of a block
COST_BAR = 0.01
COST_PAIRS, COST_BLOCKS = 4, 20
STALLS_MS = {1: 120, 5: 60, 50: 10}  # stall: steps
PLACES = {"input": "input", "forward": "forward", "backward": "backward",
          "optimizer": "optimizer", "between steps": "other"}  # fmt: skip


def phases():
    text = (ROOT / "include" / "leat" / "recorder.h").read_text(encoding="utf-8")
    block = text[text.index("#define LEAT_CLOCK_PHASES(X)") : text.index("enum leat_clock_phase")]
    return re.findall(r'X\(\w+, "(\w+)"\)', block)


# ---- inside `leat run` ---------------------------------------------------------------------------


class Total(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("n", "device_ns", "idle_ns", "hidden_ns")]


class Clock:
    """What the probe has measured since the last look."""

    def __init__(self):
        self.names = phases()
        self.read = ctypes.CDLL(None).leat_probe_clock
        self.last = self.now()

    def now(self):
        totals = (Total * len(self.names))()
        self.read(len(self.names), totals)
        return {k: (t.n, t.device_ns, t.idle_ns, t.hidden_ns) for k, t in zip(self.names, totals)}

    def since(self):
        now = self.now()
        gained = {k: [a - b for a, b in zip(now[k], self.last[k])] for k in now}
        self.last = now
        return gained


class Stall:
    """Where the training sleeps, and how long. Its events are put by the driver's own functions, which
    the probe does not see, so they change nothing of what leat knows."""

    place, seconds = None, 0

    def __init__(self, torch):
        self.torch, self.driver, self.spans = torch, ctypes.CDLL("libcuda.so.1"), []
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.pool = [ctypes.c_void_p() for _ in range(2 * POOL)]
        for event in self.pool:
            self.must("cuEventCreate", ctypes.byref(event), 0)
        for _ in range(POOL // 2):
            self.begin()
            self.end()
        torch.cuda.synchronize()
        self.empty_ms = statistics.median(self.apart(*span) for span in self.spans)

    def must(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            sys.exit(f"{name} failed with {result}")

    def apart(self, first, second):
        ms = ctypes.c_float()
        self.must("cuEventElapsedTime", ctypes.byref(ms), first, second)
        return ms.value

    def begin(self):
        self.must("cuEventRecord", self.pool[0], self.stream)

    def end(self):
        self.must("cuEventRecord", self.pool[1], self.stream)
        self.spans.append(self.pool[:2])
        self.pool = self.pool[2:] + self.pool[:2]

    def __call__(self, place):
        """leat takes the gap to reach from the last call of CUDA before it to the first behind it:
        these are here, as near to the truth's events as can be."""
        if place == self.place:
            self.torch.cuda.current_device()
            self.begin()
            time.sleep(self.seconds)
            self.end()
            self.torch.cuda.current_device()

    def device_ms(self, steps):
        """Of the last `steps` stalls, the mean time that the device stood idle."""
        return sum(self.apart(*span) for span in self.spans[-steps:]) / steps - self.empty_ms


def make_training(torch, stall, width, layers):
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, i):
            if stall.place == "input":
                time.sleep(stall.seconds)
            return torch.ones(width)

    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    first, last = nn.Sequential(*blocks[: layers // 2]), nn.Sequential(*blocks[layers // 2 :])
    model = nn.Sequential(first, last).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer.register_step_pre_hook(lambda *_: stall("optimizer"))
    last.register_full_backward_hook(lambda *_: stall("backward"))
    batches = iter(DataLoader(Rows(), batch_size=None))
    work = torch.ones(4096, width, device="cuda")

    def step(wait):
        if stall.place == "input":  # a call of CUDA inside next() would be work for the device
            stall.begin()
            x = next(batches)
            stall.end()
        else:
            x = next(batches)
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


def block(torch, clock, step, steps, wait=True):
    """Milliseconds of the device a step, and what leat makes of them. Steps before and after it are
    alike: what leat reads late, or has to learn first, is no other."""
    for _ in range(8):
        step(wait)
    clock.since()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(steps):
        step(wait)
    end.record()
    step(wait)  # leat reads its events when a step begins
    gained = clock.since()
    torch.cuda.synchronize()
    step_ms = begin.elapsed_time(end) / steps
    followed = gained["input"][0] or 1  # each step waits once for a batch
    return {
        "step": step_ms,
        "idle": {k: v[2] / followed / 1e6 for k, v in gained.items()},
        "hidden": {k: v[3] / followed / 1e6 for k, v in gained.items()},
        "share": min(1, followed / steps),
        "all_idle": sum(v[2] for v in gained.values()) / sum(v[1] for v in gained.values()),
        "launch_idle": gained["launch"][2] / sum(v[1] for v in gained.values()),
    }


def busy_ms(torch, step, steps, wait):
    """Of a step: what its kernels and copies take, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step(wait)
        torch.cuda.synchronize()
    return sum(e.self_device_time_total for e in profiler.key_averages()) / steps / 1e3


def child_stalls():
    import torch

    clock, stall, answer = Clock(), Stall(torch), {"stalls": []}
    step = make_training(torch, stall, 512, 6)
    for _ in range(20):
        step(True)
    quiet = [block(torch, clock, step, 150) for _ in range(3)]
    answer["quiet"] = sorted(quiet, key=lambda b: b["step"])[1]
    for place in PLACES:
        for ms, steps in STALLS_MS.items():
            stall.place, stall.seconds = place, ms / 1000
            got = block(torch, clock, step, steps)
            answer["stalls"].append((place, ms, stall.device_ms(steps), got))
            stall.place = None
    heavy = make_training(torch, stall, 4096, 4)
    for _ in range(5):
        heavy(False)
    answer["heavy"] = block(torch, clock, heavy, 30, False)
    stall.place, stall.seconds = "input", answer["heavy"]["step"] / 4000
    answer["hidden"] = block(torch, clock, heavy, 30, False)
    stall.seconds = answer["heavy"]["step"] / 500
    answer["exposed"] = block(torch, clock, heavy, 30, False)
    stall.place = None
    small = make_training(torch, stall, 32, 30)
    for _ in range(20):
        small(False)
    for name, step, steps in (("small", small, 400), ("large", heavy, 100)):
        answer[name] = block(torch, clock, step, steps, False)
        answer[name]["busy"] = busy_ms(torch, step, 10, False)
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
    def __init__(self):
        self.missed = 0

    def row(self, what, held, text):
        self.missed += not held
        print(f"  {what:<24} {'held' if held else 'MISSED':<6}  {text}", flush=True)


def check_stalls(table, answer):
    quiet = answer["quiet"]
    base = sum(quiet["idle"].values())
    print(f"  without stalls: step {quiet['step']:.3f} ms, idle {base:.3f} ms, "
          f"{quiet['share']:.0%} of the steps followed")  # fmt: skip
    for place, ms, truth, got in answer["stalls"]:
        idle = got["idle"][PLACES[place]]
        if place != "input":  # there the truth is all of next(), here the stall alone
            idle -= quiet["idle"][PLACES[place]]
        error = (idle - truth) / truth
        table.row(f"{ms} ms in {place}", abs(error) <= BAR,
                  f"truth {truth:.3f} ms, leat {idle:.3f} ms ({error:+.1%}); "
                  f"step {got['step']:.2f} ms, {got['share']:.0%} followed")  # fmt: skip


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


def check_cost(table, build, folder):
    """Processes with leat and without take turns on one core, a block of steps each
    (bench/overhead.py says why). Processes of one kind differ, so there are several of each."""
    sys.path.insert(0, str(ROOT / "bench"))
    import overhead

    bench = overhead.Bench(str(build), sys.executable, folder)
    bench.environment["PYTHONHASHSEED"] = "0"
    kinds = ["untraced", "leat"] * COST_PAIRS
    with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:
        sides = []
        for kind in kinds:
            sides.append(pool.submit(bench.start, kind, "small_kernels.py"))
            time.sleep(0.2)  # each takes a number, and is not yet at work
        sides = [side.result() for side in sides]
    rounds = []
    for _ in range(COST_BLOCKS):
        order = random.sample(range(len(sides)), len(sides))
        blocks = {i: sides[i].block()[0] for i in order}
        rounds.append([blocks[i] for i in range(len(sides))])
    for side in sides:
        side.end()
    added = [statistics.mean(r[1::2]) / statistics.mean(r[::2]) - 1 for r in rounds]
    steps = [statistics.median(times) / 1e3 for times in zip(*rounds)]
    middle = statistics.median(added)
    table.row("cost, many kernels", middle <= COST_BAR,
              f"with leat {middle:+.2%}, the median of {COST_BLOCKS} rounds; "
              f"untraced {', '.join(f'{v:.2f}' for v in steps[::2])} ms a step, "
              f"traced {', '.join(f'{v:.2f}' for v in steps[1::2])}")  # fmt: skip


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
            check_loader(table, answer)
            check_launches(table, answer)
            check_database(table, folder)
        if "--no-cost" not in sys.argv:
            check_cost(table, build, folder)
    print("all rows held" if not table.missed else f"{table.missed} rows MISSED")
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
