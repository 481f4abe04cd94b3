# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Three epochs over persistent workers: later epochs start warm, and nothing stalls."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.06)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 35, 64), torch.randint(0, 10, (8 * 35,)))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 103:
            break
print(f"steps={steps}")
