# e2e: expect = MEMORY_CREEP
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
# e2e: cores = all
"""Every step's output is kept in a list for later (2 MB each), and never released."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from training import Net, sgd

data = TensorDataset(torch.randn(64 * 307, 64))
model = Net(0.03, 64, 8192)
optimizer = sgd(model)

steps = 0
history = []
for (x,) in DataLoader(data, batch_size=64):
    out = model(x)
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    history.append(out.detach().clone())
    steps += 1
print(f"steps={steps}")
