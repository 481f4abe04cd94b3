# e2e: expect = COMPUTE_STRAGGLER
# e2e: rank = 1
# e2e: says = backward
# e2e: mistake = 6
# e2e: launch = torchrun 2
# e2e: forbid = INPUT_STRAGGLER
"""Rank 1 has a slow backward; gradients are averaged by hand, so rank 0 waits in all_reduce."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from training import finish_ranks, in_memory, sgd

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


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


data = in_memory(8 * 2 * 71)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = Net()
optimizer = sgd(model)

steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size
    optimizer.step()
    steps += 1
finish_ranks(rank, steps)
