# e2e: expect = COMPUTE_STRAGGLER
# e2e: rank = 1
# e2e: says = optimizer
# e2e: mistake = 6
# e2e: launch = torchrun 2
# e2e: forbid = INPUT_STRAGGLER
"""Rank 1 spends 40 ms more in its optimizer than rank 0, which waits for it in the backward."""

import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, finish_ranks, in_memory, start_ranks, train

rank = start_ranks()


class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        if rank == 1:
            time.sleep(0.04)
        return super().step(closure)


data = in_memory(8 * 2 * 67)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.02))
steps = train(loader, model, SlowSGD(model.parameters(), lr=0.01))
finish_ranks(rank, steps)
