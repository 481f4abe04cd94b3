# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = backward
"""A plain multi-layer perceptron, data in memory: the backward is twice the forward."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 199, 512), torch.randint(0, 10, (16 * 199,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    x, y = x.repeat(8, 1), y.repeat(8)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
