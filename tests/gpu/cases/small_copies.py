# e2e: expect = H2D_BOUND
# e2e: line = boxes = [b.to("cuda") for b in boxes]
# e2e: says = small_copies\.py:\d+.*copies of
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""The boxes of every image are a tensor of their own: 200 copies of some 100 bytes a step, each of
which the host waits for."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.x = torch.randn(64, 1024).pin_memory()
        self.boxes = [torch.rand(1 + i % 11, 4) for i in range(200)]

    def __len__(self):
        return 151

    def __getitem__(self, index):
        return self.x, self.boxes


model = nn.Sequential(
    nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4)
).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for x, boxes in DataLoader(Images(), batch_size=None):
    x = x.to("cuda", non_blocking=True)
    boxes = [b.to("cuda") for b in boxes]
    loss = (model(x.repeat(32, 1)).mean(0) - torch.cat(boxes)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
