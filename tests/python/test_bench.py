"""`leat bench` with real loaders: its choice, errors in rows, no process left behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEAT = os.path.join(os.environ.get("LEAT_BUILD", os.path.join(ROOT, "build")), "leat")

PREAMBLE = """
import os, signal, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

torch.set_num_threads(1)

class Rows(Dataset):
    def __init__(self, rows=4096, wait=0.002): self.rows, self.wait = rows, wait
    def __len__(self): return self.rows
    def __getitem__(self, i):
        time.sleep(self.wait)
        return torch.full((4,), float(i)), i % 2

def train(loader, after=lambda: None):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        after()
"""


class Bench:
    """A script in its own folder, and `leat bench` over it."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
        self.environment["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        # Every process of the run has it: those that exist afterwards were left behind.
        self.mark = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        self.environment["BENCH_MARK"] = self.mark

    def write(self, script):
        path = self.folder / "script.py"
        path.write_text(PREAMBLE + textwrap.dedent(script))
        return path

    def start(self, *words, **more):
        return subprocess.Popen(
            [LEAT, "bench", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )

    def run(self, script, *options, status=0, name="script.py"):
        """The parsed result of --json."""
        self.write(script)
        process = self.start("--json", *options, name)
        self.stdout, self.stderr = process.communicate(timeout=240)
        assert process.returncode == status, self.stdout + self.stderr
        assert self.left() == []
        return json.loads(self.stdout) if self.stdout else None

    def left(self):
        """Processes of the run that still exist."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if self.mark.encode() in file.read():
                        found.append(int(pid))
            except OSError:
                pass
        return found


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)


def row_of(result, workers):
    rows = [row for row in result["rows"] if row["settings"]["num_workers"] == workers]
    assert rows, result["rows"]
    return rows[0]


@pytest.mark.alone
def test_samples_that_wait_need_workers(bench):
    result = bench.run(
        """
        def main():
            train_set = Rows()
            loader = DataLoader(train_set, 16,
                                shuffle=True)
            print("begun")
            train(loader)
            print("NEVER")
        main()
        """,
        "--max-workers",
        "4",
    )
    assert result["choice"]["settings"]["num_workers"] == 4
    line = result["choice"]["line"]
    assert line.startswith("DataLoader(train_set, batch_size=16, shuffle=True, num_workers=4")
    assert result["loader"]["where"].startswith("script.py:")
    now = row_of(result, 0)
    assert now["now"] and now["samples_per_s"] < 500  # at least 2 ms a sample
    assert result["verdict"]["gain"] > 2
    assert result["verdict"]["bottleneck"] == "loader"
    assert result["model"]["steps"] >= 3
    assert result["cached_samples_per_s"] > 4 / 0.002  # more than four waiting workers can make
    assert 0.002 <= result["sample"]["mean_s"] < 0.02
    assert result["sample"]["p99_s"] >= 0.002
    assert now["first_batch_s"] >= 16 * 0.002
    # The output of the script is not among the results, and it does not continue after the last step.
    assert "begun" in bench.stderr and "NEVER" not in bench.stderr


@pytest.mark.alone
def test_a_slow_model_is_the_bottleneck(bench):
    result = bench.run(
        """
        loader = DataLoader(Rows(256, 0.0001), batch_size=16)
        train(loader, after=lambda: time.sleep(0.1))
        """,
        "--max-workers",
        "1",
    )
    assert result["verdict"]["bottleneck"] == "model"
    assert result["verdict"]["factor"] > 1.5
    assert 0.1 <= result["model"]["step_s"] < 0.3


@pytest.mark.alone
def test_a_slow_first_step_is_not_counted(bench):
    result = bench.run(
        """
        first = [3.5]  # it compiles
        loader = DataLoader(Rows(256, 0.0001), batch_size=16)
        train(loader, after=lambda: time.sleep(first.pop() if first else 0.002))
        """,
        "--max-workers",
        "0",
    )
    assert result["model"]["steps"] > 50
    assert 0.002 <= result["model"]["step_s"] < 0.1


def test_the_script_does_not_continue(bench):
    bench.run(
        """
        import atexit
        atexit.register(lambda: open("atexit", "w"))
        loader = DataLoader(Rows(256, 0), batch_size=16)
        try:
            train(loader)
        finally:
            open("saved", "w")
        """,
        "--max-workers",
        "0",
    )
    assert sorted(os.listdir(bench.folder)) == ["script.py"]


def test_a_loop_under_no_grad_is_not_the_training(bench):
    result = bench.run(
        """
        evaluation = DataLoader(Rows(64, 0), batch_size=8)
        training = DataLoader(Rows(640, 0), batch_size=16)
        with torch.no_grad():
            for batch in evaluation: pass
        train(training)
        """,
        "--max-workers",
        "0",
    )
    assert result["loader"]["dataset_length"] == 640
    result = bench.run(bench_script_of_two(), "--loader", "1", "--max-workers", "0")
    assert result["loader"]["dataset_length"] == 64


def bench_script_of_two():
    return """
    evaluation = DataLoader(Rows(64, 0), batch_size=8)
    with torch.no_grad():
        for batch in evaluation: pass
    train(DataLoader(Rows(640, 0), batch_size=16))
    """


BAD = """
class Bad(Rows):
    def __getitem__(self, i):
        if get_worker_info() is not None:
            %s
        return super().__getitem__(i)
train(DataLoader(Bad(512, 0.0005), batch_size=8, num_workers=2))
"""


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("raise ValueError('sample is bad')", "ValueError: sample is bad"),
        ("time.sleep(1000)", "hangs: no batch for 3 s"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "worker"),
        ("os._exit(7)", "worker"),
    ],
    ids=["raises", "hangs", "is killed", "exits"],
)
def test_workers_that_fail_have_a_row(bench, what, error):
    result = bench.run(BAD % what, "--timeout", "60" if "ValueError" in error else "3")
    row = row_of(result, 2)
    assert row["status"] == "failed" and row["now"]
    assert error in row["error"]
    assert row_of(result, 0)["status"] == "ok"
    assert result["choice"]["settings"]["num_workers"] == 0
    assert "num_workers" not in result["choice"]["line"]


def test_a_dataset_that_always_raises(bench):
    result = bench.run(
        """
        class Bad(Rows):
            def __getitem__(self, i): raise KeyError("no such file")
        train(DataLoader(Bad(), batch_size=8))
        """,
        status=1,
    )
    assert {row["status"] for row in result["rows"]} == {"failed"}
    assert "no such file" in result["rows"][0]["error"]
    assert result["choice"] is None


@pytest.mark.alone
def test_rows_are_kept_when_the_process_dies(bench):
    result = bench.run(
        """
        class Deadly(Rows):
            def __getitem__(self, i):
                # In the loader of the main process, after the samples that are timed one by one.
                self.count = getattr(self, "count", 0) + 1
                if get_worker_info() is None and self.count > 700: os.kill(os.getpid(), 9)
                return super().__getitem__(i)
        train(DataLoader(Deadly(wait=0.0002), batch_size=8))
        """,
        status=1,
    )
    assert "killed by signal 9" in result["rows"][0]["error"]


def test_children_of_workers_are_ended(bench):
    bench.run(
        """
        import subprocess
        class Parent(Rows):
            def __getitem__(self, i):
                if get_worker_info() is not None and not hasattr(self, "child"):
                    self.child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
                return super().__getitem__(i)
        train(DataLoader(Parent(), batch_size=8, num_workers=1))
        """,
        "--max-workers",
        "1",
    )  # run() checks for processes left behind


@pytest.mark.parametrize("group", [True, False], ids=["group", "leat alone"])
def test_ctrl_c_prints_what_was_measured(bench, group):
    bench.write("train(DataLoader(Rows(wait=0.004), batch_size=16, num_workers=1))\n")
    process = bench.start("--json", "script.py")
    deadline = time.monotonic() + 60
    while len(bench.left()) < 4 and time.monotonic() < deadline:  # leat, its helper, script, worker
        time.sleep(0.05)
    time.sleep(4)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    result = json.loads(stdout)
    assert result["interrupted"]
    assert result["rows"] and result["rows"][0]["samples_per_s"] > 0
    assert bench.left() == []
    assert "Traceback" not in stderr


def test_a_kill_before_the_loader(bench):
    bench.write("print('slow start', flush=True)\ntime.sleep(100)\n")
    process = bench.start("script.py")
    assert process.stderr.readline() == "slow start\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert bench.left() == []


@pytest.mark.alone
def test_module_and_function(bench):
    result = bench.run(
        """
        def make_loader():
            return DataLoader(dataset=Rows(), batch_size=16, num_workers=1,
                              collate_fn=lambda rows: torch.stack([r[0] for r in rows]))
        """,
        "--max-workers",
        "2",
        name="script:make_loader",
    )
    assert result["choice"]["settings"]["num_workers"] == 2
    assert "collate_fn=lambda rows:" in result["choice"]["line"]
    assert result["model"]["steps"] == 0
    assert result["verdict"]["bottleneck"] is None


@pytest.mark.alone
def test_iterable_datasets_and_own_samplers(bench):
    result = bench.run(
        """
        class Stream(IterableDataset):
            def __iter__(self):
                info = get_worker_info()
                for i in range(info.id if info else 0, 3000, info.num_workers if info else 1):
                    time.sleep(0.002)
                    yield torch.full((4,), float(i)), i % 2
        train(DataLoader(Stream(), batch_size=16))
        """,
        "--max-workers",
        "4",
    )
    assert result["choice"]["settings"]["num_workers"] == 4
    assert result["loader"]["iterable"]
    result = bench.run(
        """
        class Pairs:
            def __iter__(self): return ([i, i + 1] for i in range(0, 100, 2))
            def __len__(self): return 50
        train(DataLoader(Rows(100), batch_sampler=Pairs()))
        """,
        "--max-workers",
        "2",
    )
    assert result["choice"]["settings"]["batch_size"] is None
    assert "batch_sampler=Pairs()" in result["choice"]["line"]
    row = row_of(result, 0)
    assert row["samples"] == 2 * row["batches"]


@pytest.mark.alone
def test_batch_sizes_on_request(bench):
    result = bench.run(
        "train(DataLoader(Rows(wait=0), batch_size=2))\n",
        "--batch-size=64,256",
        "--max-workers",
        "0",
    )
    sizes = {row["settings"]["batch_size"] for row in result["rows"]}
    assert sizes == {2, 64, 256}
    assert f"batch_size={result['choice']['settings']['batch_size']}" in result["choice"]["line"]
    assert result["choice"]["settings"]["batch_size"] > 2


@pytest.mark.alone
def test_memory_is_respected(bench):
    result = bench.run(
        """
        class Hungry(Rows):
            def __getitem__(self, i):
                if get_worker_info() is not None and not hasattr(self, "mine"):
                    self.mine = torch.ones(100 << 18)  # 100 MiB
                return super().__getitem__(i)
        train(DataLoader(Hungry(), batch_size=8, num_workers=1))
        """,
        "--memory",
        "700M",
        "--max-workers",
        "16",
    )
    for row in result["rows"]:
        if row["status"] == "ok":
            assert row["memory_bytes"] <= 700 << 20
    assert 1 <= result["choice"]["settings"]["num_workers"] <= 6
    assert any("memory" in (row["error"] or "") for row in result["rows"])


def test_affinity_is_respected(bench):
    bench.write("train(DataLoader(Rows(256, 0), batch_size=16))\n")
    process = bench.start(
        "--json",
        "script.py",
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    result = json.loads(process.communicate(timeout=300)[0])
    assert result["limits"]["cpus"] <= 1
    assert result["limits"]["most_workers"] == 8


def test_random_state_is_restored(bench):
    bench.run(
        """
        import random
        torch.manual_seed(5); random.seed(5)
        expected = torch.random.get_rng_state(), random.getstate()
        loader = DataLoader(Rows(256, 0), batch_size=16, shuffle=True)
        iterator = iter(loader)
        same = (torch.random.get_rng_state() == expected[0]).all()
        print("state", bool(same and random.getstate() == expected[1]), flush=True)
        for x, y in iterator: pass
        """,
        "--max-workers",
        "1",
    )
    assert "state True" in bench.stderr
