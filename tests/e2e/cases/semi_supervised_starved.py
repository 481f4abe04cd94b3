# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, INPUT_STRAGGLER
"""Two training loaders in each step; the unlabelled one is slow and holds up both."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import Net, in_memory, sgd


class Unlabelled(Dataset):
    def __len__(self):
        return 4 * 53

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.randn(64)


labelled = in_memory(4 * 53)
labelled_loader = DataLoader(labelled, batch_size=4)
unlabelled_loader = DataLoader(Unlabelled(), batch_size=4)
model = Net(0.006)
optimizer = sgd(model)

steps = 0
for (x, y), u in zip(labelled_loader, unlabelled_loader):
    loss = nn.functional.cross_entropy(model(x), y) + model(u).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={2 * steps}")
