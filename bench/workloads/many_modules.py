"""Forward, backward and optimizer of a model of 1 000 modules.

    many_modules.py SOCKET

A hook on module calls would run a thousand times per step.
"""

import sys
import time

import torch
from torch import nn
from turns import take_turns

torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Sequential(*(m for _ in range(500) for m in (nn.Linear(8, 8), nn.ReLU())))
assert len(model) == 1000
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 8)


def train(steps):
    """Runs that many steps; returns the time each took, in ns."""
    times = []
    for _ in range(steps):
        before = time.perf_counter_ns()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - before)
    return times


train(10)
take_turns(sys.argv[1], lambda: train(4), one_core=True)
