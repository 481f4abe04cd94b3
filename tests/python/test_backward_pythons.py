"""The replacement of torch.autograd.backward passes arguments, results and exceptions through, in every
Python on this machine that bench/lines.py finds."""

import os
import subprocess
import sys

import pytest
from conftest import PACKAGE, ROOT

sys.path.insert(0, os.path.join(ROOT, "bench"))

import lines  # noqa: E402

CALLS = """
import functools, sys
from leat import _record

def original(tensors, grads=None, *rest, inputs=None, **others):
    if tensors is None:
        raise KeyError("no tensors")
    return tensors, grads, rest, inputs, others

backward = functools.wraps(original)(_record.Backward(original))
assert backward.__wrapped__ is original and backward.__name__ == "original"
class Owner:
    call = backward  # no descriptor: as the object that it is, it is not bound
for call in (backward, Owner().call):
    assert call(1) == original(1)
    assert call(1, 2, 3, inputs=4, x=5) == original(1, 2, 3, inputs=4, x=5)
    assert call(*(1, 2), **{"x": 3}) == original(1, 2, x=3)
    assert call(tensors=7) == original(7)
    assert list(map(call, [1, 2])) == [original(1), original(2)]
for bad, error in (((), TypeError), ((None,), KeyError)):
    try:
        backward(*bad)
    except error:
        continue
    raise AssertionError(error)
held = sys.getrefcount(original)
for _ in range(1000):
    backward(1, inputs=object(), y=object())
assert sys.getrefcount(original) == held
"""


@pytest.mark.parametrize("python", lines.at_hand(), ids=lines.version)
def test_a_call_is_the_call_of_the_original(python):
    env = {**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE)}
    done = subprocess.run([python, "-c", CALLS], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
