"""Every query of docs/run-db.md works on the database of a real run, and says something."""

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
    time.sleep(0.05)
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
