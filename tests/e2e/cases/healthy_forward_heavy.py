# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = forward
"""A frozen backbone with a small trained head: the forward is nearly all of the step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(8 * 211, 512), torch.randint(0, 10, (8 * 211,)))
loader = DataLoader(data, batch_size=8)
backbone = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(40)])
head = nn.Linear(512, 10)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    with torch.no_grad():
        features = backbone(x.repeat(8, 1))
    loss = nn.functional.cross_entropy(head(features), y.repeat(8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
