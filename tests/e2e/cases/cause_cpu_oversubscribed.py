# e2e: expect = INPUT_BOUND
# e2e: cause = CPU_OVERSUBSCRIBED
# e2e: says = num_workers
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Eight workers for each core, all of them computing, and a model that computes on the same cores."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from training import train


class Sequences(Dataset):
    def __len__(self):
        return 8 * 173

    def __getitem__(self, index):
        state, bits = index + 1, []
        for _ in range(40_000):
            state = (state * 1103515245 + 12345) % 2147483648
            bits.append(state & 1)
        return torch.tensor(bits[:64], dtype=torch.float32), index % 10


cores = len(os.sched_getaffinity(0))
loader = DataLoader(Sequences(), batch_size=8, num_workers=8 * cores)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10))
steps = train(loader, model)
print(f"steps={steps} batches={steps}")
