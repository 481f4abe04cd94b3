# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = optimizer
"""A wide embedding with dense AdamW: most of the step is the optimizer's own arithmetic."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randint(0, 8000, (4 * 131, 4)), torch.randint(0, 10, (4 * 131,)))
loader = DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Embedding(8000, 256), nn.Flatten(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
