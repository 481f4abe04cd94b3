# e2e: expect = COMPUTE_STRAGGLER
# e2e: rank = 1
# e2e: says = backward
# e2e: mistake = 6
# e2e: launch = torchrun 2
# e2e: forbid = INPUT_STRAGGLER
"""Rank 1 has a slow backward; under DistributedDataParallel rank 0 waits at the end of its own."""

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


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.05 if rank == 1 else 0.01)
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.01)
        return Slow.apply(self.body(x))


data = TensorDataset(torch.randn(8 * 2 * 71, 64), torch.randint(0, 10, (8 * 2 * 71,)))
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
os.write(1, f"rank={rank} steps={steps}\n".encode())
# Gloo's threads first let go of the last gradients: torch may abort at its exit otherwise.
time.sleep(0.5)
dist.destroy_process_group()
