# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Automatic mixed precision whose GradScaler skips some steps for overflow: still steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 127, 512), torch.randint(0, 10, (16 * 127,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

steps = skipped = 0
for x, y in DataLoader(data, batch_size=16):
    loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
    if steps % 10 == 5:
        loss = loss * float("inf")
    optimizer.zero_grad()
    scale = scaler.get_scale()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < scale
    steps += 1
assert skipped == 13, skipped
print(f"steps={steps} batches={steps}")
