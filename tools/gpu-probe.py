#!/usr/bin/env python3
"""Checks the counts of the CUDA probe on this GPU, and measures its cost. Prints a table; exits with 1
when a row fails, with 2 without a GPU.

    tools/gpu-probe.py [BUILD_FOLDER] [--no-cost | --only-cost]    # needs PyTorch with CUDA; of leat: leat, python/
                                                                   # and bench/probe

Four parts: loops of known length, compared with the counts of the probe; a loop under torch.profiler,
which counts by other means (CUPTI); a training under `leat run`, whose run.db must have the same
counts; and the cost: the cheapest calls with and without the probe, alternating in one process
(bench/probe.c), since two processes differ by more than the cost.
"""

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

ROOT = pathlib.Path(__file__).resolve().parents[1]
COST_PROCESSES = 5
COST_BAR_NS = 100
TRAIN_STEPS = 41


def classes():
    """The names of the classes, in the order of the list that the probe was built from."""
    text = (ROOT / "src" / "record" / "probe_abi.h").read_text(encoding="utf-8")
    block = text[text.index("#define LEAT_CUDA_CLASSES(X)") : text.index("enum leat_cuda_class")]
    return re.findall(r'X\(\w+, "(\w+)"\)', block)


# ---- in the process with the probe -----------------------------------------------------------


class Total(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint64), ("ns", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class Counts:
    """What the probe has counted since the last call."""

    def __init__(self):
        self.names = classes()
        self.read = ctypes.CDLL(None).leat_probe_read
        self.last = self.now()

    def now(self):
        totals = (Total * len(self.names))()
        self.read(len(self.names), totals)
        return {k: (t.n, t.ns, t.bytes) for k, t in zip(self.names, totals)}

    def since(self):
        now = self.now()
        gained = {k: tuple(a - b for a, b in zip(now[k], self.last[k])) for k in now}
        self.last = self.now()
        return gained


def loops(torch):
    """(name, loop, {class: (calls, bytes or None)}); without expected counts it is only shown."""
    size = 1 << 18
    x = torch.ones(size // 4, device="cuda")
    y = torch.empty_like(x)
    host = torch.ones(size // 4)
    pinned = host.pin_memory()
    stream = torch.cuda.current_stream()
    event = torch.cuda.Event()
    matrix = torch.ones(256, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)

    def times(n, call):
        def loop():
            for _ in range(n):
                call()

        return loop

    def record_and_wait():
        event.record()
        event.synchronize()

    kept = []

    def allocate():
        torch.cuda.empty_cache()
        kept.append(torch.empty(1 << 28, dtype=torch.uint8, device="cuda"))

    def allocate_pinned():
        kept.append(torch.empty(1 << 24, dtype=torch.uint8, pin_memory=True))

    def default_kind():
        torch.cuda.cudart().cudaHostRegister(host.data_ptr(), size, 0)
        y.copy_(host, non_blocking=True)
        torch.cuda.cudart().cudaHostUnregister(host.data_ptr())

    yield "101 x.add_(1)", times(101, lambda: x.add_(1)), {"launch": (101, None)}
    yield (
        "23 copies, pageable",
        times(23, lambda: y.copy_(host)),
        {"h2d_pageable": (23, 23 * size), "h2d_pinned": (0, 0)},
    )
    yield (
        "17 copies, pinned",
        times(17, lambda: y.copy_(pinned, non_blocking=True)),
        {"h2d_pinned": (17, 17 * size), "h2d_pageable": (0, 0)},
    )
    yield "3 copies, registered", times(3, default_kind), {"h2d_pinned": (3, 3 * size)}
    yield "5 x.cpu()", times(5, x.cpu), {"d2h_pageable": (5, 5 * size)}
    yield (
        "2 copies back, pinned",
        times(2, lambda: pinned.copy_(x, non_blocking=True)),
        {"d2h_pinned": (2, 2 * size)},
    )
    yield "19 y.copy_(x)", times(19, lambda: y.copy_(x)), {"d2d": (19, 19 * size)}
    yield "13 cuda.synchronize()", times(13, torch.cuda.synchronize), {"sync": (13, None)}
    yield "7 stream.synchronize()", times(7, stream.synchronize), {"sync": (7, None)}
    yield "3 event.synchronize()", times(3, record_and_wait), {"event_sync": (3, None)}
    yield "11 graph.replay()", times(11, graph.replay), {"graph_launch": (11, None)}
    yield "1 fresh 256 MiB", allocate, {"alloc": (1, None)}
    yield "1 pinned 16 MiB", allocate_pinned, {"alloc_host": (1, None)}
    yield "29 matmuls (cuBLAS)", times(29, lambda: matrix @ matrix), {}


def child_counts():
    import torch

    torch.ones(8, device="cuda").add_(1)
    torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
    torch.cuda.synchronize()
    counts = Counts()
    rows = []
    for name, loop, expected in loops(torch):
        torch.cuda.synchronize()
        counts.since()
        loop()
        gained = counts.since()
        seen = {k: v for k, v in gained.items() if v[0]}
        good = all(
            gained[k][0] == n and size in (None, gained[k][2]) for k, (n, size) in expected.items()
        )
        rows.append((name, bool(good), expected, seen))
    print(json.dumps({"rows": rows, "profiler": profiled(torch, counts)}))


def profiled(torch, counts):
    """Launches and copies of one loop, as the probe and as torch.profiler count them."""
    from torch.profiler import ProfilerActivity, profile

    x, host = torch.ones(1000, device="cuda"), torch.ones(1000)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        counts.since()
        for _ in range(31):
            x.mul_(2).add_(1)
            x.copy_(host)
        gained = counts.since()
        torch.cuda.synchronize()
    names = {}
    for event in prof.key_averages():
        names[event.key] = names.get(event.key, 0) + event.count
    launches = sum(n for key, n in names.items() if "LaunchKernel" in key)
    copies = sum(n for key, n in names.items() if key.startswith("cudaMemcpyAsync"))
    return {
        "launch": (gained["launch"][0], launches),
        "copy": (gained["h2d_pageable"][0] + gained["h2d_pinned"][0], copies),
    }


TRAIN = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn({TRAIN_STEPS * 32}, 64), torch.zeros({TRAIN_STEPS * 32}).long())
model = nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, 32):
    x, y = x.cuda(), y.cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    torch.cuda.synchronize()
"""


# ---- outside -------------------------------------------------------------------------------------


def child(mode, probe):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if probe:
        env["LD_PRELOAD"] = str(probe)
    done = subprocess.run(
        [sys.executable, __file__, mode], env=env, capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        sys.exit(f"{mode} failed:\n{done.stdout}{done.stderr}")
    if "ld.so" in done.stderr:
        sys.exit(f"the dynamic loader complained:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


class Table:
    def __init__(self):
        self.failed = 0

    def row(self, what, good, text):
        self.failed += not good
        print(f"  {what:<26} {'ok' if good else 'FAILED':<6} {text}", flush=True)


def show(calls):
    return ", ".join(f"{k} {v[0]}" + (f" ({v[2]} bytes)" if v[2] else "") for k, v in calls.items())


def check_counts(table, probe):
    answer = child("--counts", probe)
    for name, good, expected, seen in answer["rows"]:
        wanted = ", ".join(f"{k} {n}" for k, (n, _) in expected.items()) or "only shown"
        table.row(name, good, f"expected {wanted}; counted {show(seen)}")
    for what, (ours, theirs) in answer["profiler"].items():
        table.row(f"torch.profiler, {what}", ours == theirs, f"probe {ours}, profiler {theirs}")


def leat_run(leat, folder, name, *options):
    (folder / "train.py").write_text(TRAIN)
    words = [leat, "run", "-q", "--logs-dir", folder, "--run-name", name, *options]
    done = subprocess.run(
        [*words, "--", sys.executable, folder / "train.py"], capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"leat run failed:\n{done.stdout}{done.stderr}")
    path = folder / name / "run.db"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        rows = db.execute("SELECT class, n FROM cuda_calls WHERE span = 'steps'").fetchall()
        return dict(rows), db.execute("SELECT count(*) FROM steps").fetchone()[0]


def check_run(table, leat):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        calls, steps = leat_run(leat, folder, "with")
        table.row("leat run, steps", steps == TRAIN_STEPS, f"{steps} of {TRAIN_STEPS}")
        copies = calls.get("h2d_pageable", 0)
        good = copies == 2 * TRAIN_STEPS
        table.row("leat run, copies", good, f"{copies} of {2 * TRAIN_STEPS}; all: {calls}")
        # The last step ends with its optimizer, before the last synchronize().
        waits = calls.get("sync", 0)
        good = waits >= TRAIN_STEPS - 1 and calls.get("launch", 0) > TRAIN_STEPS
        table.row(
            "leat run, waits, launches", good, f"{waits} waits, {calls.get('launch', 0)} launches"
        )
        calls, _ = leat_run(leat, folder, "without", "--no-probe")
        table.row("leat run --no-probe", not calls, f"{calls or 'nothing counted'}")


def runtime_library():
    """The libcudart that torch uses."""
    code = "import torch; torch.cuda.init(); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return next(line.split()[-1] for line in maps.stdout.splitlines() if "/libcudart.so" in line)


def check_cost(table, bench):
    """The cost of a query of a passed event, and of a copy of no bytes: the cheapest calls."""
    if not bench.exists():
        table.row("cost of a call", False, f"not measured: there is no {bench}")
        return
    words, rows = [bench, runtime_library()], {}
    for _ in range(COST_PROCESSES):
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{bench} failed:\n{done.stdout}{done.stderr}")
        for line in done.stdout.splitlines()[1:]:
            what, *ns = line.split()
            rows.setdefault(what, []).append([float(x) for x in ns])
    for what, costs in rows.items():
        plain, _, added = zip(*costs)
        cost = statistics.median(added)
        table.row(
            f"cost of a call, {what}",
            cost <= COST_BAR_NS,
            f"{cost:.0f} ns on {statistics.median(plain):.0f} ns, the median of {COST_PROCESSES} "
            f"processes, {min(added):.0f} to {max(added):.0f} (bar {COST_BAR_NS} ns)",
        )


def main():
    if "--counts" in sys.argv:
        return child_counts()
    folders = [word for word in sys.argv[1:] if not word.startswith("--")]
    build = pathlib.Path(folders[0] if folders else ROOT / "build").resolve()
    probe = build / "python" / "leat" / "libleat-probe.so"
    if not probe.exists():
        print(f"There is no {probe}: nothing to try.")
        return 2
    asked = subprocess.run(
        [
            sys.executable,
            "-c",
            "import torch; print(torch.__version__, torch.cuda.get_device_name())",
        ],
        capture_output=True,
        text=True,
    )
    if asked.returncode != 0:
        print("There is no PyTorch with a CUDA device here: nothing to try.")
        return 2
    print(asked.stdout.strip())
    table = Table()
    if "--only-cost" not in sys.argv:
        check_counts(table, probe)
        check_run(table, build / "leat")
    if "--no-cost" not in sys.argv:
        check_cost(table, build / "bench" / "probe")
    print("all rows hold" if not table.failed else f"{table.failed} rows failed")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
