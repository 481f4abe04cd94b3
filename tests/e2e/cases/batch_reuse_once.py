# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 3
"""One step among many takes no batch of its own (the last one is used again)."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 210, 512), torch.randint(0, 10, (16 * 210,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(data, batch_size=16))

steps = taken = 0
while steps < 211:
    if steps != 97:
        x, y = next(batches)
        taken += 1
    loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={taken}")
