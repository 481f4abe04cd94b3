# e2e: expect = H2D_BOUND
# e2e: says = own CUDA stream
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY, LAUNCH_BOUND
"""Pinned batches and non_blocking=True: the host waits for nothing, and still the copies of 268 MB
stand on the stream that computes, where nothing else goes on meanwhile."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    def __init__(self):
        self.batches = [torch.randn(8192, 8192).pin_memory() for _ in range(2)]

    def __len__(self):
        return 151

    def __getitem__(self, index):
        return self.batches[index % len(self.batches)]


model = nn.Sequential(nn.Linear(8192, 1024), nn.ReLU(), nn.Linear(1024, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for x in DataLoader(Batches(), batch_size=None):
    x = x.to("cuda", non_blocking=True)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
