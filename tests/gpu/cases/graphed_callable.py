# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""A model made of CUDA graphs by make_graphed_callables: forward and backward are replayed, and the
training loop looks as ever."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(2048 * 211, 512))
layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(512, 4096), *layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
model = torch.cuda.make_graphed_callables(model, (torch.zeros(2048, 512, device="cuda"),))

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=2048, num_workers=4, pin_memory=True):
    loss = model(x.to("cuda", non_blocking=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
