# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, INPUT_STRAGGLER
"""Two training loaders in each step; the unlabelled one is slow and holds up both."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)


class Unlabelled(Dataset):
    def __len__(self):
        return 4 * 107

    def __getitem__(self, index):
        time.sleep(0.008)
        return torch.randn(64)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.006)
        return self.body(x)


labelled = TensorDataset(torch.randn(4 * 107, 64), torch.randint(0, 10, (4 * 107,)))
labelled_loader = DataLoader(labelled, batch_size=4)
unlabelled_loader = DataLoader(Unlabelled(), batch_size=4)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for (x, y), u in zip(labelled_loader, unlabelled_loader):
    loss = nn.functional.cross_entropy(model(x), y) + model(u).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={2 * steps}")
