"""Real training scripts, run as `leat run` would run them, against a receiver in the test."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from receiver import Receiver

# Started in the background by a shell, Ctrl-C is ignored, here and in all that is started from here;
# the tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(os.environ.get("LEAT_BUILD", os.path.join(ROOT, "build")), "python", "leat")

# What most scripts start with: a small model, data of any length, and its loss.
PREAMBLE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

torch.set_num_threads(1)

class Rows(Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return self.rows
    def __getitem__(self, i): return torch.full((4,), float(i)), i % 2

def net():
    return nn.Linear(4, 2)

def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)
"""


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "alone: rests on a measured time or share of the machine; no test runs beside it"
    )


class Finished:
    """A run that has ended: its output and what it recorded."""

    def __init__(self, receiver, done):
        self.receiver = receiver
        self.stdout = done.stdout
        self.stderr = done.stderr
        self.returncode = done.returncode

    @property
    def main(self):
        return self.receiver.main

    @property
    def workers(self):
        return sorted(self.receiver.role("worker"), key=lambda p: p.header["worker_id"])


def environment(socket=None, inject=True, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LEAT_SOCKET")}
    if inject:
        env["PYTHONPATH"] = os.path.join(PACKAGE, "_inject")
    if socket:
        env["LEAT_SOCKET"] = socket
    env.update(more)
    return env


@pytest.fixture
def train(tmp_path):
    """train(script) -> Finished. The script is given the preamble unless preamble is False."""

    def run(
        script, preamble=True, fails=False, on_hello=None, python=sys.executable, options=(), **env
    ):
        receiver = Receiver(tmp_path, on_hello)
        path = tmp_path / "script.py"
        path.write_text((PREAMBLE if preamble else "") + textwrap.dedent(script))
        inject = env.pop("inject", True)
        done = subprocess.run(
            [python, *options, str(path)],
            env=environment(receiver.path, inject, **env),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        receiver.close()
        if not fails:
            assert done.returncode == 0, done.stderr
        return Finished(receiver, done)

    return run
