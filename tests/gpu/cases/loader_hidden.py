# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Every batch takes 6 ms to make, without workers; but the GPU has more than that to do with each,
so that it never waits: nothing is to be gained from a faster loader."""

import time

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __init__(self):
        self.x = torch.randn(4096, 4096).pin_memory()

    def __len__(self):
        return 101

    def __getitem__(self, index):
        time.sleep(0.006)
        return self.x


layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(*layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for x in DataLoader(Slow(), batch_size=None):
    x = x.to("cuda", non_blocking=True)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
