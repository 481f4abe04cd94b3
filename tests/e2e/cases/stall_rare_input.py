# e2e: expect = INTERMITTENT_STALL
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""A storage hiccup of 900 ms in three of 409 fetches: a stall, not a slow pipeline."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, train


class Records(Dataset):
    def __len__(self):
        return 8 * 409

    def __getitem__(self, index):
        if index in (8 * 120, 8 * 217, 8 * 333):
            time.sleep(0.9)
        return torch.zeros(64), index % 10


model = Net(0.012)
steps = train(DataLoader(Records(), batch_size=8), model)
print(f"steps={steps} batches={steps}")
