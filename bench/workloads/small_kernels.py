"""A training on the GPU whose kernels are shorter than their launches: some thousand a step.

    leat run small_kernels.py PAIRS        # prints {entries, pairs: [[ms without leat, ms with it],
    ...]}

A step waits for its loss. leat is removed from the process and restored in turns of two steps
(unhooked.py); the first step of each turn is not counted, since the caches hold the other's data.
So neighbouring steps are compared: the load of the machine changes from one tenth of a second to
the next by more than leat costs. Python's thread and autograd's run on one core, the fastest of
some trial steps.
"""

import json
import os
import random
import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from unhooked import Leat

WIDTH, BLOCKS = 32, 125


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.sigmoid(self.linear(x))


torch.manual_seed(1)
torch.set_num_threads(1)
work = torch.ones(WIDTH, device="cuda")
model = nn.Sequential(*[Block() for _ in range(BLOCKS)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
batches = iter(DataLoader(torch.ones(1 << 20, 16), batch_size=None))


def train(steps):
    """Runs that many steps; returns the time each took, in ms."""
    times = []
    before = time.perf_counter_ns()
    for _ in range(steps):
        next(batches)
        optimizer.zero_grad()
        loss = model(work).sum()
        loss.backward()
        optimizer.step()
        loss.item()
        now = time.perf_counter_ns()
        times.append((now - before) / 1e6)
        before = now
    return times


def second_step(there):
    leat.put(there)
    return train(2)[1]


def move_to(core):
    for thread in os.listdir("/proc/self/task"):  # autograd's, too
        os.sched_setaffinity(int(thread), {core})


def steps_on(core):
    move_to(core)
    return statistics.mean(train(4)[1:])


train(20)
move_to(min(os.sched_getaffinity(0), key=steps_on))
leat = Leat()
pairs = []
for _ in range(int(sys.argv[1])):
    got = {there: second_step(there) for there in random.sample((True, False), 2)}
    pairs.append((got[False], got[True]))
leat.put(True)
print(json.dumps({"entries": len(leat.parts[1].entries), "pairs": pairs}))
