"""The probe as `leat run` preloads it into a training. CUDA is replaced by a library of the tests
(tests/unit/probe), which is loaded as Python loads extensions."""

import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("LEAT_BUILD", ROOT / "build")).resolve()
LEAT = BUILD / "leat"
PLUGIN = BUILD / "tests" / "unit" / "probe" / "libfake_plugin.so"
# LD_PRELOAD accepts no path with a space, and leat may have been built in one, so a copy is used.
COPY = tempfile.TemporaryDirectory(prefix="leat-probe-")
PACKAGE = pathlib.Path(os.path.realpath(COPY.name), "leat")
PROBE = PACKAGE / "libleat-probe.so"
STEPS = 23

LAUNCH = f"""
import ctypes

plugin = ctypes.CDLL({str(PLUGIN)!r})


def launch(times):
    for _ in range(times):
        assert plugin.fake_plugin_launch() == 0
    assert ctypes.c_long.in_dll(plugin, "fake_calls").value > 0
"""

TRAIN = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

launch(7)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn({STEPS * 8}, 4), torch.zeros({STEPS * 8}).long()), 8):
    launch(5)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
launch(11)
"""


def copy_of_the_package(folder):
    shutil.copytree(BUILD / "python" / "leat", folder, ignore=shutil.ignore_patterns("*.p"))
    return folder


copy_of_the_package(PACKAGE)


def leat_run(folder, *words, options=(), **env):
    clean = {
        k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LEAT_PROBE", "PYTHONPATH")
    }
    return subprocess.run(
        [LEAT, "run", "--run-name", "probe", *options, "--", *words],
        cwd=folder,
        env=clean | {"LEAT_PYTHON_DIR": str(PACKAGE)} | env,
        capture_output=True,
        text=True,
    )


def database(folder):
    path = folder / "logs" / "probe" / "run.db"
    return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(LAUNCH + TRAIN)
    done = leat_run(folder, sys.executable, "train.py", LEAT_PROBE="1")
    assert done.returncode == 0, done.stderr
    assert "ld.so" not in done.stderr
    return folder


def test_calls_are_counted_by_span(trained):
    rows = database(trained).execute(
        "SELECT rank, span, class, n, bytes FROM cuda_calls ORDER BY n"
    )
    assert rows.fetchall() == [
        (0, "before", "launch", 7, 0),
        (0, "after", "launch", 11, 0),
        (0, "steps", "launch", 5 * STEPS, 0),
    ]
    (signals,) = (
        database(trained).execute("SELECT signals FROM processes WHERE rank = 0").fetchone()
    )
    assert "cuda" in signals.split(",")


def test_documented_query(trained):
    text = (ROOT / "docs" / "run-db.md").read_text(encoding="utf-8")
    (query,) = [
        q
        for q in re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if "FROM cuda_calls" in q
    ]
    ((rank, name, calls, _, _, megabytes),) = database(trained).execute(query).fetchall()
    assert (rank, name, calls, megabytes) == (0, "launch", 5.0, 0.0)


def test_summary_of_cuda_calls(trained):
    folder = trained / "logs" / "probe"
    (rank,) = json.loads((folder / "final_summary.json").read_text())["system"]["cuda"]
    (calls,) = rank["calls"]
    assert (rank["rank"], rank["steps"]) == (0, STEPS)
    assert (calls["class"], calls["calls"], calls["calls_per_step"]) == ("launch", 5 * STEPS, 5)
    assert calls["time_per_step"] >= 0 and calls["bytes"] == 0
    text = (folder / "final_summary.txt").read_text()
    assert re.search(r"^- CUDA, a step: 5 launches, \d", text, re.MULTILINE), text


PLACES = f"""
import threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def many(call, times):
    return [call() for _ in range(times)]  # helper


class Wrapped:
    def item(self):
        return plugin.fake_plugin_wait()  # inner


for _ in range(7):
    plugin.fake_plugin_copy()  # before
thread = threading.Thread(target=lambda: [plugin.fake_plugin_wait() for _ in range(100)])  # thread
thread.start()
thread.join()
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn({STEPS * 8}, 4), torch.zeros({STEPS * 8}).long()), 8):
    plugin.fake_plugin_copy(), plugin.fake_plugin_copy()  # copies
    many(plugin.fake_plugin_wait, 3)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    Wrapped().item()
    optimizer.step()
    plugin.fake_plugin_launch()
"""


def test_lines_that_copy_and_wait(tmp_path):
    source = LAUNCH + PLACES
    (tmp_path / "train.py").write_text(source)
    done = leat_run(tmp_path, sys.executable, "train.py", LEAT_PROBE="1")
    assert done.returncode == 0, done.stderr

    def line(mark):
        (number,) = (i for i, text in enumerate(source.splitlines(), 1) if text.endswith(mark))
        return number

    rows = database(tmp_path).execute(
        "SELECT line, class, n, bytes, steps FROM cuda_lines WHERE file = 'train.py' AND ns > 0"
    )
    assert sorted(rows) == sorted(
        [
            (line("# before"), "h2d_pageable", 7, 448, 1),
            (line("# copies"), "h2d_pageable", 2 * STEPS, 128 * STEPS, STEPS),
            (line("# helper"), "sync", 3 * STEPS, 0, STEPS),
            (line("# inner"), "sync", STEPS, 0, STEPS),
            (line("# thread"), "sync", 100, 0, 1),
        ]
    )
    # The calls of every step are in the summary, not those before the first batch or of the thread.
    folder = tmp_path / "logs" / "probe"
    (rank,) = json.loads((folder / "final_summary.json").read_text())["system"]["cuda"]
    lines = {
        (x["line"], x["kind"], x["calls_per_step"], x["bytes_per_step"]) for x in rank["lines"]
    }
    assert lines == {
        (line("# copies"), "pageable_copy", 2, 128),
        (line("# helper"), "wait", 3, 0),
        (line("# inner"), "wait", 1, 0),
    }
    assert all(x["file"] == "train.py" and x["time_per_step"] > 0 for x in rank["lines"])
    text = (folder / "final_summary.txt").read_text()
    copies = f"- Copies of pageable memory: train.py:{line('# copies')} (2 a step, "
    waits = f"- Waits for the GPU: train.py:{line('# helper')} (3 a step, "
    assert copies in text and waits in text
    ((others,),) = database(tmp_path).execute(
        "SELECT count(*) FROM cuda_lines WHERE file != 'train.py'"
    )
    assert others == 0


SHOW = "import os; print(os.environ.get('LD_PRELOAD'))"


@pytest.mark.parametrize(
    "options, env",
    [
        (["--no-probe"], {"LEAT_PROBE": "1"}),
        ([], {"LEAT_PROBE": "0"}),
    ],
)
def test_probe_can_be_disabled(tmp_path, options, env):
    done = leat_run(tmp_path, sys.executable, "-c", SHOW, options=options, **env)
    assert done.stdout == "None\n"


def test_ld_preload_of_the_user_stays_first(tmp_path):
    own = shutil.copy(BUILD / "tests" / "unit" / "probe" / "libcuda.so.1", tmp_path)
    done = leat_run(tmp_path, sys.executable, "-c", SHOW, LEAT_PROBE="1", LD_PRELOAD=str(own))
    assert done.stdout == f"{own}:{PROBE}\n"
    assert "ld.so" not in done.stderr


def test_a_child_without_the_probe_is_reported(tmp_path):
    # Only a process that uses a device is reported; the hooks do so when CUDA is initialised.
    (tmp_path / "train.py").write_text(
        "from leat import _record\ndef launch(times): pass\n"
        + TRAIN
        + "_record.signals(_record.SIGNAL_H2D)\n"
    )
    words = ["env", "-u", "LD_PRELOAD", sys.executable, "train.py"]
    done = leat_run(tmp_path, *words, LEAT_PROBE="1")
    assert done.returncode == 0, done.stderr
    why = database(tmp_path).execute("SELECT why FROM lost WHERE what = 'probes'").fetchall()
    assert [row for row in why if "another LD_PRELOAD" in row[0]], why
    assert database(tmp_path).execute("SELECT count(*) FROM cuda_calls").fetchone() == (0,)


def test_a_path_that_cannot_be_preloaded(tmp_path):
    package = copy_of_the_package(tmp_path / "a folder" / "leat")
    done = leat_run(
        tmp_path, sys.executable, "-c", SHOW, LEAT_PROBE="1", LEAT_PYTHON_DIR=str(package)
    )
    assert done.stdout == "None\n" and done.returncode == 0
    assert PROBE.name in done.stderr and "ld.so" not in done.stderr


def test_a_missing_library(tmp_path):
    package = copy_of_the_package(tmp_path / "leat")
    (package / PROBE.name).unlink()
    done = leat_run(
        tmp_path, sys.executable, "-c", SHOW, LEAT_PROBE="1", LEAT_PYTHON_DIR=str(package)
    )
    assert done.stdout == "None\n" and done.returncode == 0
    assert "there is no libleat-probe.so" in done.stderr and "ld.so" not in done.stderr


@pytest.mark.parametrize(
    "program", ["/bin/true", "/sbin/ldconfig"]
)  # the second is linked statically
def test_programs_without_cuda(tmp_path, program):
    if not os.path.exists(program):
        pytest.skip(f"there is no {program}")
    done = leat_run(tmp_path, program, "--version", LEAT_PROBE="1")
    assert done.returncode == 0 and "ld.so" not in done.stderr


SLOW = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.ones(4)


model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Slow(), 2):
    launch(3)
    model(x).sum().backward()
    optimizer.step()
with torch.no_grad():
    for x in DataLoader(Slow(), 2):
        launch(3)
"""


@pytest.mark.alone
def test_device_idle_time_of_input(tmp_path):
    # The fake device is always idle, so the clock measures every wait in full.
    (tmp_path / "train.py").write_text(LAUNCH + SLOW)
    done = leat_run(tmp_path, sys.executable, "train.py", LEAT_PROBE="1")
    assert done.returncode == 0, done.stderr
    rows = database(tmp_path).execute("SELECT phase, n, idle_ns, hidden_ns, rank FROM gpu_clock")
    clock = {phase: rest for phase, *rest in rows}
    n, idle_ns, hidden_ns, rank = clock["input"]
    # Of 15 steps the first are not counted, nor the evaluation; the fetch that found the end is.
    assert rank == 0 and 6 <= n <= 13
    assert 0.04e9 * (n - 1) <= idle_ns and hidden_ns < 0.1 * idle_ns
    # One sample inside a short phase may charge all of it as idle time between launches.
    missing = {"forward", "backward", "optimizer", "other"} - set(clock)
    assert not missing or ("launch" in clock and len(missing) < 3), clock
    folder = tmp_path / "logs" / "probe"
    (rank,) = json.loads((folder / "final_summary.json").read_text())["system"]["gpu_clock"]
    assert rank["phases"][0]["phase"] == "input" and rank["phases"][0]["idle_share"] > 0.5
    text = (folder / "final_summary.txt").read_text()
    assert re.search(r"^- GPU clock: idle \d+ % of the time \(input \d", text, re.MULTILINE), text


COLLECTIVE = """
import os
import socket
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

with socket.create_server(("127.0.0.1", 0)) as free:
    where = f"tcp://127.0.0.1:{free.getsockname()[1]}"
late = os.fork() == 0
dist.init_process_group("gloo", init_method=where, rank=int(late), world_size=2)
if late:
    for _ in range(15):
        time.sleep(0.02)
        dist.barrier()
    os._exit(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(15, 4), batch_size=None):
    launch(3)
    model(x).sum().backward()
    dist.barrier()
    optimizer.step()
os.wait()
"""


@pytest.mark.alone
def test_device_idle_time_of_a_slow_rank(tmp_path):
    (tmp_path / "train.py").write_text(LAUNCH + COLLECTIVE)
    done = leat_run(tmp_path, sys.executable, "train.py", LEAT_PROBE="1")
    assert done.returncode == 0, done.stderr
    rows = database(tmp_path).execute("SELECT phase, n, idle_ns FROM gpu_clock WHERE rank = 0")
    clock = {phase: rest for phase, *rest in rows}
    n, idle_ns = clock["collective"]
    assert 6 <= n <= 12 and idle_ns >= 0.01e9 * n
    assert idle_ns > 10 * clock["other"][1]
    text = (tmp_path / "logs" / "probe" / "final_summary.txt").read_text()
    assert re.search(r"^- GPU clock: idle [^|]*collectives\s+\d", text, re.MULTILINE), text
