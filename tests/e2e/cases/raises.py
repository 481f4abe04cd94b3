# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, OOM_KILL
# e2e: exit = 1
# e2e: ended = failed
# e2e: stderr = RuntimeError: loss is not finite
"""Fails with an exception in its 68th step: the verdict on the first 67 is still given."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __len__(self):
        return 4 * 500

    def __getitem__(self, index):
        time.sleep(0.008)
        return torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.01)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Records(), batch_size=4):
    loss = nn.functional.cross_entropy(model(x), y)
    if steps == 67:
        print(f"steps={steps}")
        raise RuntimeError("loss is not finite")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
