"""tools/gpu-clock.py and tools/gpu-probe.py, which hold the probe against the truth, tried on the
CUDA of the tests (tests/unit/probe) and the probe that leat ships."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("LEAT_BUILD", ROOT / "build")).resolve()
FAKES = BUILD / "tests" / "unit" / "probe"

LOAD = f"""
import ctypes, importlib.util, json, sys, time, types

driver = ctypes.CDLL({str(FAKES / "libcuda.so.1")!r}, ctypes.RTLD_GLOBAL)
runtime = ctypes.CDLL({str(FAKES / "libcudart.so.99")!r}, ctypes.RTLD_GLOBAL)


def load(name):
    spec = importlib.util.spec_from_file_location("tool", {str(ROOT / "tools")!r} + "/" + name)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool
"""

# A training as the probe hears of one. Its launches come from a library that was linked with CUDA.
STALLS = f"""
tool = load("gpu-clock.py")
ctypes.c_uint64.in_dll(driver, "fake_event_takes_ns").value = 1500  # so that leat follows few steps
launch = ctypes.CDLL({str(FAKES / "libfake_plugin.so")!r}).fake_plugin_launch
mark_phase = ctypes.CDLL(None).leat_probe_phase
current = types.SimpleNamespace(cuda_stream=0)
cuda = types.SimpleNamespace(current_stream=lambda: current)
clock, stall = tool.Clock(), tool.Stall(types.SimpleNamespace(cuda=cuda))


def mark(name):
    mark_phase(clock.names.index(name))


def step(wait, begun=lambda: None):
    mark("input")
    if stall.place == "input":
        stall.begin()
        time.sleep(stall.seconds)
        stall.end()
    mark("forward")
    begun()
    launch()
    stall("forward")
    launch()
    mark("backward")
    launch()
    stall("backward")
    launch()
    mark("other")
    mark("optimizer")
    launch()
    stall("optimizer")
    launch()
    mark("other")
    launch()
    stall("between steps")


launch()
for _ in range(20):
    step(True)
answer = []
for place in tool.PLACES:
    for ms, steps in {{1: 120, 5: 40, 50: 5}}.items():
        stall.place, stall.seconds = place, ms / 1000
        got = tool.followed_steps(stall, clock, step, steps)
        answer.append((tool.PLACES[place], ms, got["truth"], got["idle"], got["n"], steps))
print(json.dumps(answer))
"""


@pytest.fixture
def run(tmp_path):
    probe = shutil.copy(BUILD / "python" / "leat" / "libleat-probe.so", tmp_path)

    def run(code):
        words = [sys.executable, "-c", LOAD + code]
        env = os.environ | {"LD_PRELOAD": str(probe)}
        return subprocess.run(words, capture_output=True, text=True, env=env)

    return run


@pytest.mark.alone
def test_a_stall_is_found_in_its_phase_with_its_length(run):
    done = run(STALLS)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 15
    assert any(followed < steps / 2 for *_, followed, steps in rows), rows
    for place, ms, truth, idle, followed, _ in rows:
        row = (place, ms, truth, idle, followed)
        assert followed > 0 and truth >= ms, row
        assert idle[place] >= 0.95 * truth, row
        if ms == 50:  # shorter ones may be doubled by other processes on the cores
            assert idle[place] <= 1.2 * truth, row
            assert sum(idle.values()) - idle[place] <= 0.2 * truth, row


# A query takes 20 us, a copy nothing.
SLOW_QUERY = """
#include <time.h>
int cudaEventQuery(void *event)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < 20000);
    return 0;
}
int cudaMemcpyAsync(void *to, const void *from, unsigned long n, int kind, void *stream)
{
    return 0;
}
"""


def cost_of_calls(library):
    words = [str(BUILD / "bench" / "probe"), str(library), "100"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {name: tuple(map(float, figures)) for name, *figures in rows}


def test_the_cost_of_a_call_is_in_nanoseconds_with_and_without_the_probe(tmp_path):
    source, library = tmp_path / "cudart.c", tmp_path / "libcudart.so.99"
    source.write_text(SLOW_QUERY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    costs = cost_of_calls(library)
    assert set(costs) == {"query", "copy"}
    without, with_probe, _ = costs["query"]
    assert 20_000 <= without < 1_000_000 and 20_000 <= with_probe < 1_000_000  # not of 100 calls
    without, with_probe, added = costs["copy"]
    assert 0 < without < with_probe < 20_000 and 0 < added < 20_000


def test_calls_that_bypass_the_probe_are_an_error():
    bench, library = BUILD / "bench" / "probe", str(FAKES / "libcudart.so.99")
    bypass = os.environ | {"LD_PRELOAD": library}
    done = subprocess.run([bench, library, "100"], capture_output=True, text=True, env=bypass)
    assert done.returncode == 1 and "0 calls were counted, 20200 were made" in done.stderr
    done = subprocess.run([bench, "none.so"], capture_output=True, text=True)
    assert done.returncode == 2 and "none.so" in done.stderr


UNHOOKED = f"""
sys.path.insert(0, {str(ROOT / "bench" / "workloads")!r})
launch = ctypes.CDLL({str(FAKES / "libfake_plugin.so")!r}).fake_plugin_launch
calls = ctypes.c_long.in_dll(runtime, "fake_calls")
launch()  # binds it
import unhooked
probe, counts, answer = unhooked.Probe(), load("gpu-probe.py").Counts(), []
for there in (True, False, True):
    probe.put(there)
    before = calls.value
    counts.since()
    for _ in range(7):
        launch()
    answer.append((there, sum(n for n, _, _ in counts.since().values()), calls.value - before))
print(json.dumps(answer))
"""


def test_the_probe_is_taken_out_and_put_back(run):
    done = run(UNHOOKED)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[True, 7, 7], [False, 0, 7], [True, 7, 7]]


HOOKS = f"""
import sys
sys.path.insert(0, {str(ROOT / "bench" / "workloads")!r})
import torch, unhooked

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(torch.utils.data.DataLoader(torch.ones(100, 4), batch_size=2))


def train(steps):
    for _ in range(steps):
        model(next(batches)).sum().backward()
        optimizer.step()


train(10)
hooks = unhooked.Hooks()
for _ in range(2):  # the second changes nothing
    hooks.put(False)
train(20)
hooks.put(True)
train(7)
"""


def test_the_hooks_are_taken_out_and_put_back(tmp_path):
    (tmp_path / "train.py").write_text(HOOKS)
    words = [str(BUILD / "leat"), "run", "-q", "--logs-dir", str(tmp_path), "--run-name", "r", "--",
             sys.executable, str(tmp_path / "train.py")]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "r" / "final_summary.json").read_text())
    assert summary["step_time"]["steps"] == 17


@pytest.mark.parametrize(
    "of_bar, error, holds",
    [(0.4, 0.5, True), (0.9, 0.2, None), (1.1, 0.2, None), (1.5, 0.4, False)],
)
def test_a_cost_whose_error_reaches_the_bar_is_open(capsys, of_bar, error, holds):
    spec = importlib.util.spec_from_file_location("gpu_clock", ROOT / "tools" / "gpu-clock.py")
    gpu_clock = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu_clock)
    middle, error = of_bar * gpu_clock.COST_BAR, error * gpu_clock.COST_BAR
    table = gpu_clock.Table()
    table.row("cost", gpu_clock.cost_holds(middle, error), "")
    assert table.results == [holds]
    assert table.end() == (1 if holds is False else 0)
    said = {True: "all rows held\n", None: "all rows held but 1", False: "1 rows MISSED"}
    assert said[holds] in capsys.readouterr().out
