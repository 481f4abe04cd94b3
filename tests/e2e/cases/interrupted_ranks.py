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

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, in_memory, print_rank, sgd, start_ranks, take_step

rank = start_ranks()
data = in_memory(8 * 2 * 500)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.04))
optimizer = sgd(model)

steps = 0
for x, y in loader:
    take_step(model, optimizer, x, y)
    steps += 1
    if steps == 59:
        print_rank(rank, steps)
        dist.barrier()
        if rank == 0:
            os.write(1, b"press Ctrl-C\n")
        time.sleep(60)
