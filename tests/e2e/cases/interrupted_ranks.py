# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: launch = torchrun 2
# e2e: interrupt = press Ctrl-C
# e2e: exit = 1
# e2e: ended = interrupted
# e2e: stderr = SIGINT|got signal: 2
"""Ctrl-C in the terminal of two ranks: torchrun fails, and the run was interrupted all the same."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.04)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 2 * 500, 64), torch.randint(0, 10, (8 * 2 * 500,)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps == 59:
        os.write(1, f"rank={rank} steps={steps}\n".encode())
        dist.barrier()
        if rank == 0:
            os.write(1, b"press Ctrl-C\n")
        time.sleep(60)
