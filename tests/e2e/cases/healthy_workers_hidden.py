# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Two workers prepare batches (6 ms each) behind a step of some 20 ms: nothing is exposed."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 8 * 193

    def __getitem__(self, index):
        time.sleep(0.0008)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(512, generator=generator), index % 10


loader = DataLoader(Records(), batch_size=8, num_workers=2, prefetch_factor=4)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.repeat(24, 1)), y.repeat(24))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
