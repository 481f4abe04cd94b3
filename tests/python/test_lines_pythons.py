"""The line profiler in every Python on this machine that bench/lines.py finds: it reads the memory of the
interpreter, whose layout differs between versions."""

import os
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT
from receiver import Receiver

sys.path.insert(0, os.path.join(ROOT, "bench"))

import lines  # noqa: E402


@pytest.mark.alone
@pytest.mark.parametrize("python", lines.at_hand(), ids=lines.version)
@pytest.mark.parametrize("kind", ["python", "objects"])
def test_a_busy_line_is_found(tmp_path, python, kind):
    receiver = Receiver(tmp_path)
    env = {
        **os.environ,
        "PYTHONPATH": os.path.dirname(PACKAGE),
        "LEAT_SOCKET": receiver.path,
    }
    done = subprocess.run(
        [python, lines.SCRIPT, kind, "1.5"], env=env, capture_output=True, text=True
    )
    receiver.close()
    assert done.returncode == 0, done.stderr
    # The sleep may take as long as the busy line does in a fast interpreter.
    user_lines = [line for line in receiver.processes[0].lines if line.below < 0]
    found = [line for line in user_lines if not line.function.endswith("wait")]
    busiest = max(found, key=lambda line: line.ns)
    assert busiest.file.endswith("line_kinds.py") and f'"line": {busiest.line},' in done.stdout
