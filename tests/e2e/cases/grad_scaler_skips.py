# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Automatic mixed precision whose GradScaler skips some steps for overflow: still steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd

data = in_memory(16 * 127, 512)
model = computing_net()
optimizer = sgd(model)
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
