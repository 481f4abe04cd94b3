# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: evaluates = 0.8
"""A validation loop every 100 steps whose fetches take 400 ms, and whose loss is read with .item():
evaluation, neither slow input nor a wait of the training."""

import time

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class SlowValidation(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.randn(1024), index


train = TensorDataset(torch.randn(256 * 211, 1024), torch.randint(0, 10, (256 * 211,)))
loader = DataLoader(train, batch_size=256, num_workers=4, pin_memory=True)
val_loader = DataLoader(SlowValidation(), batch_size=2)
layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(1024, 4096), *layers, nn.Linear(4096, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
losses = []


def validate():
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            loss = nn.functional.cross_entropy(model(x.to("cuda")), y.to("cuda"))
            losses.append(loss.item())
    model.train()


turn.take()
steps = 0
for x, y in loader:
    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(x.repeat(6, 1)), y.repeat(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 100 == 0:
        validate()
torch.cuda.synchronize()
print(f"steps={steps}")
