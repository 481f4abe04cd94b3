# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_COLLATE
# e2e: says = collate
# e2e: line = counts = Counter(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Samples that only have to be looked up, and a collate_fn that counts their words one by one."""

import os
import random
from collections import Counter

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, train

random.seed(1)


class Texts(Dataset):
    def __init__(self):
        self.texts = [random.choices(range(30_000), k=15_000) for _ in range(64)]

    def __len__(self):
        return 64 * 61

    def __getitem__(self, index):
        return self.texts[index % len(self.texts)], index % 10


def make_bags(samples):
    bags = torch.zeros(len(samples), 64)
    for row, (tokens, _) in enumerate(samples):
        counts = Counter(token * 40503 % 64 for token in tokens)
        bags[row, list(counts)] = torch.tensor(list(counts.values()), dtype=torch.float32)
    return bags, torch.tensor([label for _, label in samples])


model = Net(0.006)
cores = len(os.sched_getaffinity(0))
loader = DataLoader(Texts(), batch_size=64, num_workers=cores, collate_fn=make_bags)
steps = train(loader, model)
print(f"steps={steps} batches={steps}")
