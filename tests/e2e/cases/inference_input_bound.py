# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = INSUFFICIENT_DATA
"""An inference pass that waits 40 ms for each batch and computes for 10."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net


class Records(Dataset):
    def __len__(self):
        return 4 * 101

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(64)


model = Net(0.01).eval()
steps = 0
with torch.no_grad():
    for x in DataLoader(Records(), batch_size=4):
        model(x)
        steps += 1
print(f"steps={steps} batches={steps}")
