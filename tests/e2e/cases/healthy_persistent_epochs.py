# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Three epochs over persistent workers: later epochs start warm, and nothing stalls."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(8 * 67, 512), torch.randint(0, 10, (8 * 67,)))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.repeat(16, 1)), y.repeat(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 199:
            break
print(f"steps={steps}")
