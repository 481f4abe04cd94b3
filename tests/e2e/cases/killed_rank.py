# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = INPUT_STRAGGLER, COMPUTE_STRAGGLER, STRAGGLER, OOM_KILL
# e2e: launch = torchrun 2
# e2e: exit = 1
# e2e: ended = failed
# e2e: stderr = Signal 9 \(SIGKILL\)
"""Rank 1 dies by SIGKILL after 61 steps, torchrun ends rank 0: the steps of both are there."""

import os
import signal

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, Records, print_rank, sgd, start_ranks, take_step

rank = start_ranks()
data = Records(4 * 2 * 500, sample_s=0.01)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.01))
optimizer = sgd(model)

steps = 0
for x, y in loader:
    take_step(model, optimizer, x, y)
    steps += 1
    if steps == 61:
        print_rank(rank, steps)
        dist.barrier()  # rank 0 has printed its count, too
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
