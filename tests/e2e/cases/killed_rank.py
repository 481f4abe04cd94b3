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
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()


class Records(Dataset):
    def __len__(self):
        return 4 * 2 * 500

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.01)
        return self.body(x)


data = Records()
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps == 61:
        os.write(1, f"rank={rank} steps={steps}\n".encode())
        dist.barrier()  # rank 0 has said its count, too
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
