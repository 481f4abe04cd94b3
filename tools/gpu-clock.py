#!/usr/bin/env python3
"""Does the clock of the device tell the truth on this GPU, and what does it cost? Prints a table;
exits with 1 when a row is MISSED, with 2 when there is nothing to try it on.

    tools/gpu-clock.py [BUILD_FOLDER] [--no-cost]    # needs PyTorch with CUDA; of leat: leat and python/

Stalls of 1, 5 and 50 ms are put into each phase of a training that waits for its loss in every step.
The truth does not come from leat: it is the time between two events of torch that stand right before
and right behind each stall, where leat does not know that there is one; part of a stall is hidden behind
work that was queued before it. leat's idle time in that phase must have grown by the same, within 5 %.
Then a loader that is slow, but hidden behind compute, must show no idle time; and one that is not hidden
must. Last, a step of many small kernels with leat and without.
"""

import contextlib
import ctypes
import json
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
COST_BAR = 0.01
STALLS_MS = {1: 120, 5: 60, 50: 16}  # stall: steps
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
    """Where the training sleeps, and how long."""

    place, seconds = None, 0

    def __init__(self, torch):
        self.torch, self.events = torch, []

    def __call__(self, place):
        if place == self.place:
            with self.timed():
                time.sleep(self.seconds)

    @contextlib.contextmanager
    def timed(self):
        before, after = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        yield
        after.record()
        self.events.append((before, after))

    def device_ms(self, steps):
        """Of the last `steps` stalls, the mean time that the device stood idle."""
        return sum(a.elapsed_time(b) for a, b in self.events[-steps:]) / steps


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
        # A call of CUDA inside next() would be work for the device: so these events stand around it.
        with stall.timed() if stall.place == "input" else contextlib.nullcontext():
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
    for _ in range(16):
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
    }


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
    heavy = make_training(torch, stall, 4096, 12)
    for _ in range(5):
        heavy(False)
    answer["heavy"] = block(torch, clock, heavy, 30, False)
    stall.place, stall.seconds = "input", answer["heavy"]["step"] / 4000
    answer["hidden"] = block(torch, clock, heavy, 30, False)
    stall.seconds = answer["heavy"]["step"] / 500
    answer["exposed"] = block(torch, clock, heavy, 30, False)
    print(json.dumps(answer))


def child_cost():
    """Milliseconds of a step of many small kernels: the least of blocks of 20, on the same cores."""
    import torch

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[2:6])
    step, times = make_training(torch, Stall(torch), 32, 30), []
    for _ in range(100):
        step(True)
    for _ in range(40):
        t0 = time.perf_counter()
        for _ in range(20):
            step(True)
        times.append((time.perf_counter() - t0) / 20 * 1e3)
    print(json.dumps(min(times)))


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


def check_database(table, folder):
    path = pathlib.Path(folder) / "stalls" / "run.db"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        rows = dict(db.execute("SELECT phase, idle_ns FROM gpu_clock WHERE idle_ns > 0").fetchall())
    table.row("run.db", set(PLACES.values()) <= set(rows),
              ", ".join(f"{k} {v / 1e9:.2f} s" for k, v in rows.items()))  # fmt: skip
    text = (path.parent / "final_summary.txt").read_text()
    line = [line for line in text.splitlines() if line.startswith("- GPU clock")]
    table.row("report", len(line) == 1, line[0] if line else "no line")


def check_cost(table, leat, folder):
    with_it, without = [], []
    for i in range(3):
        without.append(child("--cost"))
        with_it.append(child("--cost", leat, pathlib.Path(folder) / str(i)))
    added = statistics.median(with_it) / statistics.median(without) - 1
    table.row("cost, many kernels", added <= COST_BAR,
              f"step {statistics.median(without):.3f} ms, with leat {added:+.2%} "
              f"(untraced {', '.join(f'{v:.3f}' for v in without)}; "
              f"traced {', '.join(f'{v:.3f}' for v in with_it)})")  # fmt: skip


def main():
    if "--stalls" in sys.argv:
        return child_stalls()
    if "--cost" in sys.argv:
        return child_cost()
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
        answer = child("--stalls", build / "leat", folder)
        if os.environ.get("OUT"):
            pathlib.Path(os.environ["OUT"], "gpu-clock.json").write_text(json.dumps(answer))
        check_stalls(table, answer)
        check_loader(table, answer)
        check_database(table, folder)
        if "--no-cost" not in sys.argv:
            check_cost(table, build / "leat", folder)
    print("all rows held" if not table.missed else f"{table.missed} rows MISSED")
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
