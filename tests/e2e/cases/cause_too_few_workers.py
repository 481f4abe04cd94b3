# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: busy_cause = SLOW_SAMPLE
# e2e: says = num_workers
# e2e: busy_says = re\.findall|sample
# e2e: line = words = re.findall(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
"""One worker splits texts into words and is never done in time, while the other core is idle.
With that one kept busy by somebody else another worker would have nothing to run on."""

import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
random.seed(1)


class Texts(Dataset):
    def __init__(self):
        words = ["".join(random.choices("abcdefgh", k=random.randint(2, 9))) for _ in range(997)]
        self.texts = [" ".join(random.choices(words, k=30_000)) for _ in range(16)]

    def __len__(self):
        return 8 * 127

    def __getitem__(self, index):
        words = re.findall(r"(?:a|b|c)\w+", self.texts[index % len(self.texts)])
        return torch.full((64,), float(len(words))), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Texts(), batch_size=8, num_workers=1):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
