"""Forward and backward through a model of 1 000 modules, with an optimizer.

    many_modules.py RESULT

Any hook on module calls is paid a thousand times a step here. Writes its step times to RESULT.
"""

import json
import sys
import time

import torch
from torch import nn

WARMUP, STEPS = 30, 200

torch.manual_seed(1)
torch.set_num_threads(1)
layers = [m for _ in range(500) for m in (nn.Linear(8, 8), nn.ReLU())]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 8)


def train(steps):
    times = []
    for _ in range(steps):
        before = time.perf_counter_ns()
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - before)
    return times


train(WARMUP)
cpu = time.process_time_ns()
times = train(STEPS)
cpu = time.process_time_ns() - cpu
with open(sys.argv[1], "w") as f:
    json.dump({"step_ns": times, "cpu_ns": cpu, "modules": len(layers)}, f)
