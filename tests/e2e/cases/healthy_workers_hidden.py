# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Two workers prepare batches (20 ms each) behind a step of 60 ms: nothing is exposed."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 8 * 109

    def __getitems__(self, indices):
        time.sleep(0.02)
        return [(torch.randn(64), index % 10) for index in indices]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.06)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Records(), batch_size=8, num_workers=2, prefetch_factor=4):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
