# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: says = num_workers
# e2e: line = time.sleep(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
"""One worker reads texts from a slow store, one after the other, and splits them into words: more
workers would wait at the same time."""

import random
import re
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, train

random.seed(1)


class Texts(Dataset):
    def __init__(self):
        words = ["".join(random.choices("abcdefgh", k=random.randint(2, 9))) for _ in range(997)]
        self.texts = [" ".join(random.choices(words, k=2000)) for _ in range(16)]

    def read(self, index):
        time.sleep(0.008)
        return self.texts[index % len(self.texts)]

    def __len__(self):
        return 8 * 79

    def __getitem__(self, index):
        text = self.read(index)
        words = re.findall(r"(?:a|b|c)\w+", text)
        return torch.full((64,), float(len(words))), index % 10


model = Net(0.012)
steps = train(DataLoader(Texts(), batch_size=8, num_workers=1), model)
print(f"steps={steps} batches={steps}")
