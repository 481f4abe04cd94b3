# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""A compiled model: the step that compiles takes seconds and is no stall, the others are healthy."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_float32_matmul_precision("high")
data = TensorDataset(torch.randn(512 * 211, 512))
layers = [nn.Sequential(nn.Linear(4096, 4096), nn.GELU(), nn.LayerNorm(4096)) for _ in range(2)]
model = nn.Sequential(nn.Linear(512, 4096), *layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
compiled = torch.compile(model)

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=512, num_workers=4, pin_memory=True):
    x = x.to("cuda", non_blocking=True).repeat(16, 1)
    loss = compiled(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
