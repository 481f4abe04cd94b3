# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""One validation batch by next(iter(val_loader)) every 100 steps, 400 ms each time."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)


class SlowValidation(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.randn(512), index % 10


train = TensorDataset(torch.randn(16 * 311, 512), torch.randint(0, 10, (16 * 311,)))
loader = DataLoader(train, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=4, shuffle=True)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in loader:
    if steps % 100 == 50:
        with torch.no_grad():
            val_x, val_y = next(iter(val_loader))
            nn.functional.cross_entropy(model(val_x), val_y)
    loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
