# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_SAMPLER
# e2e: forbid = WAIT_HEAVY
"""leat's own loader, with a sampler of the user's that takes its time over every batch."""

import time

import leat
import torch
from torch import nn
from torch.utils.data import Sampler
from training import in_memory, train


class Thoughtful(Sampler):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __iter__(self):
        for i in torch.randperm(self.rows).tolist():
            if i % 64 == 0:
                time.sleep(0.002)
            yield i


data = in_memory(256 * 101)
loader = leat.DataLoader(data, batch_size=256, sampler=Thoughtful(len(data)))
assert loader.plan().runs_in_c
model = nn.Linear(64, 10)
steps = train(loader, model, epochs=3)
print(f"steps={steps} batches={steps}")
