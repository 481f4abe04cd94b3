"""tools/gpu-clock.py, which holds the clock of the device against the truth, tried on the CUDA of the
tests (tests/unit/probe): stalls of known length in known places, and the probe that leat ships."""

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
TOOL = ROOT / "tools" / "gpu-clock.py"
FAKES = BUILD / "tests" / "unit" / "probe"

spec = importlib.util.spec_from_file_location("gpu_clock", TOOL)
gpu_clock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_clock)

# A training as the probe hears of one. Its launches come from a library that was linked with CUDA.
STALLS = f"""
import ctypes, importlib.util, json, sys, time, types

driver = ctypes.CDLL({str(FAKES / "libcuda.so.1")!r}, ctypes.RTLD_GLOBAL)
ctypes.c_uint64.in_dll(driver, "fake_event_takes_ns").value = 10000  # so that leat follows few steps
ctypes.CDLL({str(FAKES / "libcudart.so.99")!r}, ctypes.RTLD_GLOBAL)
launch = ctypes.CDLL({str(FAKES / "libfake_plugin.so")!r}).fake_plugin_launch
mark_phase = ctypes.CDLL(None).leat_probe_mark
spec = importlib.util.spec_from_file_location("gpu_clock", {str(TOOL)!r})
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
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
        answer.append((place, ms, got["truth"], got["idle"][tool.PLACES[place]], got["n"], steps))
print(json.dumps(answer))
"""


def test_stalls_are_told_by_the_steps_that_were_followed(tmp_path):
    probe = shutil.copy(BUILD / "python" / "leat" / "libleat-probe.so", tmp_path)
    done = subprocess.run([sys.executable, "-c", STALLS], capture_output=True, text=True,
                          env=os.environ | {"LD_PRELOAD": probe})  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 15
    assert any(followed < steps / 2 for *_, followed, steps in rows), rows
    for place, ms, truth, idle, followed, _ in rows:
        assert followed > 0 and truth >= ms, (place, ms, truth, followed)
        assert idle >= 0.95 * truth, (place, ms, truth, idle)
        assert idle <= 2 * truth or ms == 1, (place, ms, truth, idle)  # others use the cores, too


@pytest.mark.parametrize(
    "middle, error, holds",
    [(0.004, 0.005, True), (0.02, 0.018, None), (0.008, 0.005, None), (0.03, 0.01, False)],
)
def test_a_cost_that_cannot_be_told_is_not_held(capsys, middle, error, holds):
    table = gpu_clock.Table()
    table.row("cost", gpu_clock.cost_holds(middle, error), "")
    assert table.results == [holds]
    assert table.end() == (1 if holds is False else 0)
    said = {True: "all rows held\n", None: "all rows held but 1", False: "1 rows MISSED"}
    assert said[holds] in capsys.readouterr().out
