# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""The validation loop forgot torch.no_grad(): its batches still never lead to a backward."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)


class SlowValidation(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        time.sleep(0.07)
        return torch.randn(512), index


train = TensorDataset(torch.randn(16 * 103, 512), torch.randint(0, 10, (16 * 103,)))
loader = DataLoader(train, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=2)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 307:
            break
    model.eval()
    for x, y in val_loader:
        nn.functional.cross_entropy(model(x), y)
    model.train()
print(f"steps={steps}")
