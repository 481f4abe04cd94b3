# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = forward
"""A frozen backbone with a small trained head: the forward is nearly all of the step."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from training import in_memory

data = in_memory(8 * 211, 512)
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
