"""Every query of docs/run-db.md works on the database of a real run, and returns rows; and all figures of /proc about a process or the machine are in it."""

import os
import re
import sqlite3
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEAT = os.path.join(os.environ.get("LEAT_BUILD", os.path.join(ROOT, "build")), "leat")
STEPS = 23

SCRIPT = f"""
import time
import leat
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return {STEPS} * 8

    def __getitem__(self, index):
        until = time.perf_counter() + 0.004  # long enough for the sampler to find it
        while time.perf_counter() < until:
            pass
        return torch.randn(4), 0


torch.set_num_threads(1)
data = Slow()
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, num_workers=2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    time.sleep(0.2)
for _ in leat.DataLoader(torch.randn(64, 4), batch_size=8):  # whose batches leat's threads make
    pass
torch.save(model.state_dict(), "model.pt")
"""


def document():
    with open(os.path.join(ROOT, "docs", "run-db.md"), encoding="utf-8") as f:
        return f.read()


def queries():
    return re.findall(r"^```sql\n(.*?)^```$", document(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [LEAT, "run", "--run-name", "docs", "--quiet", "--", sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    path = folder / "logs" / "docs" / "run.db"
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    yield connection
    connection.close()


def test_there_are_queries():
    assert len(queries()) >= 8


@pytest.mark.parametrize("query", queries(), ids=lambda q: " ".join(q.split())[:48])
def test_query(database, query):
    rows = database.execute(query).fetchall()
    # Nothing has to be lost in a run, and this one uses no CUDA (test_probe.py asks about one that
    # seems to); every other query has rows to show.
    assert rows or "FROM lost" in query or "FROM cuda_calls" in query


def test_time_of_a_step(database):
    query = next(q for q in queries() if "AS step_ms" in q)
    ((rank, steps, step_ms, *phases),) = database.execute(query).fetchall()
    assert (rank, steps) == (0, STEPS)
    assert sum(phases) <= step_ms + 0.01


def test_every_table_and_column_is_documented(database):
    text = document()
    tables = [
        row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    assert "steps" in tables
    for table in tables:
        assert re.search(rf"^### .*\b{table}\b", text, re.MULTILINE), table
        if table == "step_folds":
            continue  # the sums of the columns of steps
        for column in database.execute(f"PRAGMA table_info({table})"):
            assert re.search(rf"\b{column[1]}\b", text), f"{table}.{column[1]}"


# The columns of proc_samples and the file in /proc/PID that has them.
PROCESS_COLUMNS = {
    "cpu_ns": "stat",
    "threads": "stat",
    "minor_faults": "stat",
    "major_faults": "stat",
    "rss_bytes": "statm",
    "shared_bytes": "statm",
    "voluntary": "status",
    "involuntary": "status",
    "read_bytes": "io",
    "write_bytes": "io",
    "read_calls": "io",
    "fds": "fd",
    "fd_limit": "limits",
    "run_delay_ns": "schedstat",
}
# Those of sys_samples, the file, and the words in it.
SYSTEM_COLUMNS = {
    "cpu_ratio": ("/proc/stat", "cpu"),
    "run_cpu_ratio": ("/proc/stat", "cpu"),
    "iowait_ratio": ("/proc/stat", "cpu"),
    "steal_ratio": ("/proc/stat", "cpu"),
    "memory_total": ("/proc/meminfo", "MemTotal"),
    "memory_available": ("/proc/meminfo", "MemAvailable"),
    "swap_used_bytes": ("/proc/meminfo", "SwapTotal"),
    "swap_in_bytes": ("/proc/vmstat", "pswpin"),
    "swap_out_bytes": ("/proc/vmstat", "pswpout"),
    "cpu_pressure": ("/proc/pressure/cpu", "some"),
    "memory_pressure": ("/proc/pressure/memory", "some"),
    "io_pressure": ("/proc/pressure/io", "some"),
    "shm_total": ("/proc/mounts", "/dev/shm"),
    "shm_used": ("/proc/mounts", "/dev/shm"),
}


def columns(database, table):
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def has_words(path, words=""):
    """Whether this machine has the file, and the words in it."""
    if os.path.isdir(path):
        return True
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return words in f.read()
    except OSError:
        return False


def test_processes_are_seen_whole(database):
    """A process that has ended, but is not yet waited for, has few figures: so of each process there is
    a sample in which nothing is missing, not in all samples."""
    assert columns(database, "proc_samples") == {"t_ns", "pid", *PROCESS_COLUMNS}
    wanted = [c for c, file in PROCESS_COLUMNS.items() if has_words(f"/proc/self/{file}")]
    assert len(wanted) >= 8  # stat and status are everywhere
    found = database.execute("SELECT role, pid FROM processes WHERE role IN ('main', 'worker')")
    processes = found.fetchall()
    assert sorted(role for role, _ in processes) == ["main", "worker", "worker"]
    whole = " AND ".join(f"{c} IS NOT NULL" for c in wanted)
    for role, pid in processes:
        (samples,) = database.execute(
            f"SELECT count(*) FROM proc_samples WHERE pid = ? AND {whole}", (pid,)
        ).fetchone()
        counts = ", ".join(f"count({c})" for c in wanted)
        seen = database.execute(f"SELECT {counts} FROM proc_samples WHERE pid = ?", (pid,))
        assert samples, f"{role}: {dict(zip(wanted, seen.fetchone()))}"
        # It waited, it touched memory, it was at work: counters are of this process, and not all 0.
        most = database.execute(
            "SELECT max(voluntary), max(minor_faults), max(cpu_ns), max(rss_bytes) "
            "FROM proc_samples WHERE pid = ?",
            (pid,),
        ).fetchone()
        assert all(value > 0 for value in most), (role, most)


def test_machine_is_seen_whole(database):
    assert columns(database, "sys_samples") == {"t_ns", *SYSTEM_COLUMNS}
    wanted = [c for c, source in SYSTEM_COLUMNS.items() if has_words(*source)]
    assert {"cpu_ratio", "memory_total"} <= set(wanted)
    counts = ", ".join(f"count({c})" for c in wanted)
    seen = database.execute(f"SELECT {counts} FROM sys_samples").fetchone()
    missing = [c for c, n in zip(wanted, seen) if n == 0]
    assert not missing
    (cpu, memory) = database.execute(
        "SELECT max(run_cpu_ratio), min(memory_available) FROM sys_samples"
    ).fetchone()
    assert cpu > 0
    assert memory > 0
