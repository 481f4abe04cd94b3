# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""A validation loop every 100 steps whose fetches take 400 ms: evaluation, not slow input."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import computing_net, in_memory, sgd, take_step


class SlowValidation(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        time.sleep(0.2)
        return torch.randn(512), index


train_set = in_memory(16 * 307, 512)
loader = DataLoader(train_set, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=2)
model = computing_net()
optimizer = sgd(model)


def validate():
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            nn.functional.cross_entropy(model(x), y)
    model.train()


steps = 0
for x, y in loader:
    take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
    steps += 1
    if steps % 100 == 0:
        validate()
print(f"steps={steps}")
