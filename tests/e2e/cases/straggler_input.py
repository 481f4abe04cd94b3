# e2e: expect = INPUT_STRAGGLER
# e2e: rank = 1
# e2e: launch = torchrun 2
# e2e: forbid = COMPUTE_STRAGGLER
"""Rank 1 reads from a slower disk (40 ms a batch); under DDP rank 0 waits in its backward."""

import os
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
        return 4 * 2 * 61

    def __getitem__(self, index):
        if rank == 1:
            time.sleep(0.01)
        return torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.02)
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
os.write(1, f"rank={rank} steps={steps}\n".encode())
# Gloo's threads first let go of the last gradients: torch may abort at its exit otherwise.
time.sleep(0.5)
dist.destroy_process_group()
