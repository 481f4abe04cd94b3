# e2e: expect = H2D_BOUND
# e2e: line = x = x.to("cuda")
# e2e: says = pageable_copies\.py:\d+.*pin_memory=True
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY, LAUNCH_BOUND
"""Batches of 134 MB lie in ordinary memory: each copy passes through the driver's own buffer, and
nothing else goes on meanwhile."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    def __init__(self):
        self.batches = [torch.randn(4096, 8192) for _ in range(2)]

    def __len__(self):
        return 151

    def __getitem__(self, index):
        return self.batches[index % len(self.batches)], torch.zeros(4096, dtype=torch.long)


model = nn.Sequential(nn.Linear(8192, 2048), nn.ReLU(), nn.Linear(2048, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for x, y in DataLoader(Batches(), batch_size=None):
    x = x.to("cuda")
    y = y.to("cuda")
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
