"""A very small training: one loader, one model, one optimizer.

    tiny_mlp.py SOCKET [traceml]

Times each of its steps, with the fetch of the batch. With `traceml` it has the two changes that
TraceML requires of a plain PyTorch loop.
"""

import contextlib
import itertools
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from turns import take_turns

torch.manual_seed(1)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(8000, 16), torch.randint(0, 2, (8000,)))
loader = DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

around_step = contextlib.nullcontext
if sys.argv[2:] == ["traceml"]:
    import traceml_ai

    traceml_ai.init(mode="auto")

    def around_step():
        return traceml_ai.trace_step(model)


def train(batches, steps):
    """Runs that many steps; returns the time each took, in ns."""
    times = []
    before = time.perf_counter_ns()
    for x, y in batches:
        with around_step():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        now = time.perf_counter_ns()
        times.append(now - before)
        before = now
        if len(times) == steps:
            break
    return times


endless = itertools.chain.from_iterable(itertools.repeat(loader))
train(endless, 500)
take_turns(sys.argv[1], lambda: train(endless, 60), one_core=True)
