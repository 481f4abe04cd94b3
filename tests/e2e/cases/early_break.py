# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Every pass over the loader is left early by break; the batch in hand is dropped."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 500, 512), torch.randint(0, 10, (16 * 500,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for length in (41, 53, 57):
    for i, (x, y) in enumerate(loader):
        if i == length:
            break
        loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
print(f"steps={steps}")
