# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""One validation batch by next(iter(val_loader)) every 100 steps, 400 ms each time."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import computing_net, in_memory, sgd, take_step


class SlowValidation(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.1)
        return torch.randn(512), index % 10


train = in_memory(16 * 311, 512)
loader = DataLoader(train, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=4, shuffle=True)
model = computing_net()
optimizer = sgd(model)

steps = 0
for x, y in loader:
    if steps % 100 == 50:
        with torch.no_grad():
            val_x, val_y = next(iter(val_loader))
            nn.functional.cross_entropy(model(val_x), val_y)
    take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
    steps += 1
print(f"steps={steps}")
