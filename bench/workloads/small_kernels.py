"""A training on the GPU whose kernels are too small for their launches: some thousand a step.

    small_kernels.py SOCKET

Times each of its own steps, from batch to batch; each waits for its loss. Both threads that launch,
Python's and autograd's, run on the one core that all sides share.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from turns import take_turns

WIDTH, BLOCKS, STEPS = 32, 125, 12


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
    """Runs that many steps; returns the time each took, in ns."""
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
        times.append(now - before)
        before = now
    return times


train(20)
core = max(os.sched_getaffinity(0))
for thread in os.listdir("/proc/self/task"):  # autograd's, too
    os.sched_setaffinity(int(thread), {core})
take_turns(sys.argv[1], lambda: train(STEPS))
