# e2e: expect = WAIT_HEAVY
# e2e: line = dist.barrier()
# e2e: says = nccl_barrier\.py:\d+ waits for the GPU.*barrier\(\)
# e2e: forbid = INPUT_BOUND, H2D_BOUND, LAUNCH_BOUND
# e2e: launch = torchrun 1
"""dist.barrier() over NCCL in every step, and then a line of log: a barrier waits until the GPU is
done with everything, so that it has nothing to do while Python makes the line."""

import json
import os
import random

import torch
import torch.distributed as dist
import turn
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
blocks = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = DistributedDataParallel(nn.Sequential(*blocks).to("cuda"), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
values, log = [random.random() for _ in range(4000)], []

turn.take()
steps = 0
for x in DataLoader(torch.randn(211, 1024, 16), batch_size=None, pin_memory=True):
    x = x.to("cuda", non_blocking=True)
    loss = model(x.repeat(1, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    dist.barrier()
    log.append(json.dumps({"step": steps, "values": sorted(values)}))
os.write(1, f"rank={dist.get_rank()} steps={steps} batches={steps}\n".encode())
dist.destroy_process_group()
