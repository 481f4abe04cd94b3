# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 3
"""Every batch is used for two optimizer steps: half of the steps have no fetch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 100, 512), torch.randint(0, 10, (16 * 100,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = taken = 0
for x, y in DataLoader(data, batch_size=16):
    taken += 1
    for _ in range(2):
        loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 199:
            break
print(f"steps={steps} batches={taken}")
