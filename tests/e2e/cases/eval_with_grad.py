# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 1
# e2e: evaluates = 1.2
"""The validation loop forgot torch.no_grad(): its batches still never lead to a backward."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import computing_net, in_memory, sgd, take_step


class SlowValidation(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        time.sleep(0.07)
        return torch.randn(512), index


train_set = in_memory(16 * 103, 512)
loader = DataLoader(train_set, batch_size=16)
val_loader = DataLoader(SlowValidation(), batch_size=2)
model = computing_net()
optimizer = sgd(model)

steps = 0
for _epoch in range(3):
    for x, y in loader:
        take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
        steps += 1
        if steps == 307:
            break
    model.eval()
    for x, y in val_loader:
        nn.functional.cross_entropy(model(x), y)
    model.train()
print(f"steps={steps}")
