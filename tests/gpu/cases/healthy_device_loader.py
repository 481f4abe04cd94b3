# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""leat.DataLoader brings batches of 64 MB to the GPU while it computes on the one before."""

import leat
import torch
import turn
from torch import nn
from torch.utils.data import TensorDataset

data = TensorDataset(torch.randn(4096 * 8, 4096))
loader = leat.DataLoader(data, batch_size=4096, shuffle=True, device="cuda")
layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(*layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for _ in range(13):
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
