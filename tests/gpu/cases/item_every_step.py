# e2e: expect = WAIT_HEAVY
# e2e: line = values.append(loss.item())
# e2e: says = item_every_step\.py:\d+.*\.item\(\)
# e2e: forbid = INPUT_BOUND, H2D_BOUND, LAUNCH_BOUND
"""loss.item() in every step, and then a line of log is made of it: while Python does that, the GPU
has nothing to do, because the host had waited until it was done with everything."""

import json
import random

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(1024 * 211, 256), torch.randint(0, 10, (1024 * 211,)))
blocks = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(2)]
model = nn.Sequential(nn.Linear(256, 4096), *blocks, nn.Linear(4096, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
values, log = [random.random() for _ in range(2000)], []


def log_step():
    last = values[-2000:]
    log.append(json.dumps({"step": steps, "losses": last, "median": sorted(last)[1000]}))


class Sliced:
    """Whole batches at a time, so that the input takes nothing."""

    def __len__(self):
        return 211

    def __getitem__(self, i):
        return tuple(t[1024 * i : 1024 * (i + 1)] for t in data.tensors)


turn.take()
steps = 0
for x, y in DataLoader(Sliced(), batch_size=None, num_workers=1, pin_memory=True):
    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    values.append(loss.item())
    log_step()
print(f"steps={steps} batches={steps}")
