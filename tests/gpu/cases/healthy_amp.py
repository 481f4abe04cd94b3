# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Half precision with GradScaler, which looks in every step whether a gradient is infinite; the step
that it skips is a step too, and its short wait is none of the user's."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(1024 * 211, 512))
layers = [nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(512, 8192), *layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=1024, num_workers=4, pin_memory=True):
    x = x.to("cuda", non_blocking=True).repeat(12, 1)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
