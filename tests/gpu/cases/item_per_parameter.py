# e2e: expect = WAIT_HEAVY
# e2e: line = total += p.grad.norm().item() / p.norm().item()
# e2e: says = item_per_parameter\.py:\d+.*\.item\(\)
# e2e: forbid = INPUT_BOUND, H2D_BOUND
"""How large gradients are beside weights is summed up in Python: the host waits for the GPU twice a
parameter, 196 times a step, and each time the GPU then waits for the host."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64 * 127, 512))
layers = [nn.Linear(512, 512) for _ in range(48)]
model = nn.Sequential(*layers, nn.Linear(512, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=64, pin_memory=True, num_workers=2):
    x = x.to("cuda", non_blocking=True)
    loss = model(x.repeat(128, 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm().item() / p.norm().item()
    if total > 0:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 / max(1.0, total)
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
