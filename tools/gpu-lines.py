#!/usr/bin/env python3
"""Checks that leat names the lines that make the GPU wait. Prints a table; exits with 1 when a line
was missed or a healthy training got a finding, with 2 without a GPU.

    tools/gpu-lines.py [BUILD_FOLDER [cost]]     # needs PyTorch with CUDA; of leat: leat and python/

Each script is a real training of some steps under `leat run`. The line that ends in "# KIND" must be
named as that kind in final_summary.json (system.cuda[].lines) and in the text, every step of it counted,
and no other line may be. Then the cost: a loop of waits before and after call sites are
recorded (`cost` after the folder: only that).
"""

import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 60
AT_ONCE = 6  # most of a run is the import of torch
COST_CALLS = 20_000
COST_ROUNDS = 5
COST_BAR_NS = 1000

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}
data = TensorDataset(torch.randn({rows}, 1024), torch.zeros({rows}).long())
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(DataLoader(data, 128, pin_memory={pin})):
{copy}
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
{after}
"""
HEALTHY = '    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)'
WAITING_COPY = '    x, y = x.to("cuda"), y.to("cuda")'

HELPER = """
def log(loss):
    total.append(loss.item())  # wait

total = []
"""

# (name, pinned, code before the loop, how the batch is copied, code after the step)
CASES = [
    ("pageable .to()", False, "", WAITING_COPY + "  # pageable_copy", "    pass"),
    ("pageable .cuda()", False, "", "    x, y = x.cuda(), y.cuda()  # pageable_copy", "    pass"),
    ("pageable, non_blocking", False, "", HEALTHY + "  # pageable_copy", "    pass"),
    ("pinned, blocking", True, "", WAITING_COPY + "  # blocking_copy", "    pass"),
    (".item()", True, "", HEALTHY, "    value = loss.item()  # wait"),
    (".item() in a function", True, HELPER, HEALTHY, "    log(loss)"),
    ("print(loss)", True, "", HEALTHY, "    print(loss)  # wait"),
    ("float(loss)", True, "", HEALTHY, "    value = float(loss)  # wait"),
    (".cpu()", True, "", HEALTHY, "    value = loss.detach().cpu()  # wait"),
    ("if loss > 9", True, "", HEALTHY, "    if loss > 9e9:  # wait\n        break"),
    ("cuda.synchronize()", True, "", HEALTHY, "    torch.cuda.synchronize()  # wait"),
    ("nonzero()", True, "", HEALTHY, "    x.nonzero()  # wait"),
    ("healthy", True, "", HEALTHY, "    pass"),
    ("healthy, logs now and then", True, "", HEALTHY, "    if step % 20 == 0: print(loss.item())"),
]


def source_of(case):
    _, pin, before, copy, after = case
    return TRAIN.format(before=before, rows=STEPS * 128, pin=pin, copy=copy, after=after)


def expected_of(source):
    """{(line, kind)} of the comments "# KIND" in a script."""
    lines = enumerate(source.splitlines(), 1)
    found = [(number, re.search(r"# (\w+)$", text)) for number, text in lines]
    return {(number, kind.group(1)) for number, kind in found if kind}


def run_case(leat, folder, source):
    (folder / "train.py").write_text(source)
    words = [leat, "run", "-q", "--logs-dir", folder, "--run-name", "lines", "--"]
    done = subprocess.run(
        [*words, sys.executable, folder / "train.py"], capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(f"leat run failed:\n{done.stdout[-2000:]}{done.stderr}")
    summary = json.loads((folder / "lines" / "final_summary.json").read_text())
    text = (folder / "lines" / "final_summary.txt").read_text()
    return summary["system"]["cuda"][0], re.sub(r"\s+", " ", text)


def check_case(leat, case):
    source = source_of(case)
    with tempfile.TemporaryDirectory() as name:
        cuda, text = run_case(leat, pathlib.Path(name), source)
    expected = expected_of(source)
    named = {(line["line"], line["kind"]) for line in cuda["lines"]}
    shown = all(f"train.py:{number} (" in text for number, _ in expected)
    whole = all(line["calls_per_step"] >= 0.98 for line in cuda["lines"])
    held = named == expected and shown and whole
    words = ", ".join(
        f"train.py:{line['line']} {line['kind']}, {line['calls_per_step']:.3g} a step,"
        f" {line['time_per_step'] * 1000:.0f} us"
        for line in cuda["lines"]
    )
    if not held:
        words += f"; expected {sorted(expected) or 'none'}, in the text: {shown}"
    return held, words or "no line"


# ---- cost -----------------------------------------------------------------------------------------


def child_cost():
    """Nanoseconds of one Stream.synchronize() on an idle stream, the cheapest call that has a call site,
    before and after its call site is recorded."""
    import time

    import torch
    from leat import _record
    from leat.profile import lines

    torch.ones(8, device="cuda").add_(1)
    wait = torch.cuda.current_stream().synchronize
    torch.cuda.synchronize()

    def loop():
        t0 = time.perf_counter_ns()
        for _ in range(COST_CALLS):
            wait()
        return (time.perf_counter_ns() - t0) / COST_CALLS

    def deep(n):
        return deep(n - 1) if n else min(loop() for _ in range(5))

    deep(20)
    without = deep(20)  # as deep as in a training framework
    if not (lines.can_read_stacks() and _record.watch_call_sites(lines.describe)):
        sys.exit("this Python's stack cannot be read")
    print(json.dumps((without, deep(20))))


def cost(build):
    env = os.environ | {
        "LD_PRELOAD": str(build / "python" / "leat" / "libleat-probe.so"),
        "PYTHONPATH": str(build / "python"),
    }
    words = [sys.executable, __file__, "--cost"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"--cost failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check_cost(build):
    with concurrent.futures.ThreadPoolExecutor(COST_ROUNDS) as pool:
        rounds = list(pool.map(lambda _: cost(build), range(COST_ROUNDS)))
    added = statistics.median(after - before for before, after in rounds)
    words = (
        f"{added:.0f} ns, the median of {COST_ROUNDS} processes, about 23 frames deep (bar"
        f" {COST_BAR_NS} ns): "
        + ", ".join(f"{before:.0f} to {after:.0f}" for before, after in rounds)
    )
    return added <= COST_BAR_NS, words


def row(what, held, words):
    print(f"  {what:<27} {'held' if held else 'MISSED':<6} {words}", flush=True)


def main():
    if "--cost" in sys.argv:
        return child_cost()
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    words = "import torch; print(torch.__version__, torch.cuda.get_device_name())"
    asked = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    if asked.returncode != 0 or not (build / "leat").exists():
        print("There is no PyTorch with a CUDA device here, or nothing was built: nothing to try.")
        return 2
    print(asked.stdout.strip(), f"- {STEPS} steps each")
    missed, cases = 0, [] if sys.argv[2:] == ["cost"] else CASES
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda case: check_case(build / "leat", case), cases)
        for case, (held, words) in zip(cases, answers):
            row(case[0], held, words)
            missed += not held
    held, words = check_cost(build)
    row("cost of a line", held, words)
    missed += not held
    print("all rows hold" if not missed else f"{missed} rows missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
