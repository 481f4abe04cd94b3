# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: launch = torchrun 1
"""DistributedDataParallel over NCCL, a group of one: its all_reduce runs on a stream of its own, beside
the backward, and no rank waits for another."""

import os

import torch
import torch.distributed as dist
import turn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
data = TensorDataset(torch.randn(1024 * 101, 512))
blocks = [nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(512, 8192), *blocks).to("cuda")
model = DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
sampler = DistributedSampler(data)

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=1024, sampler=sampler, num_workers=4, pin_memory=True):
    loss = model(x.to("cuda", non_blocking=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
os.write(1, f"rank={dist.get_rank()} steps={steps} batches={steps}\n".encode())
dist.destroy_process_group()
