# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: launch = torchrun 2
"""Two even ranks under DistributedDataParallel: nobody waits for anybody."""

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


data = TensorDataset(torch.randn(8 * 2 * 97, 64), torch.randint(0, 10, (8 * 2 * 97,)))
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
