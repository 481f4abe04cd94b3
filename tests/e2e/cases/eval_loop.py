# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""A validation loop every 100 steps whose fetches take 400 ms: evaluation, not slow input."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)


class SlowValidation(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.randn(512), index


train = TensorDataset(torch.randn(16 * 307, 512), torch.randint(0, 10, (16 * 307,)))
loader = DataLoader(train, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=2)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def validate():
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            nn.functional.cross_entropy(model(x), y)
    model.train()


steps = 0
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 100 == 0:
        validate()
print(f"steps={steps}")
