# e2e: expect = MEMORY_CREEP
# e2e: says = device 0
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY, H2D_BOUND, LAUNCH_BOUND
"""Every step's output is kept on the GPU for later (4 MB each), and never released."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 853
data = TensorDataset(torch.randn(64 * STEPS, 256))
layers = [nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(4)]
model = nn.Sequential(nn.Linear(256, 2048), *layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
history = []
for (x,) in DataLoader(data, batch_size=64, num_workers=2, pin_memory=True):
    out = model(x.to("cuda", non_blocking=True).repeat(48, 1))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    history.append(out.detach()[:512].clone())
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
