# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: severity = critical
# e2e: says = num_workers
# e2e: line = words = re.findall(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY, H2D_BOUND, LAUNCH_BOUND
"""One worker splits texts into words and is never done in time; the other cores and the GPU wait."""

import random
import re

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(1)


class Texts(Dataset):
    def __init__(self):
        words = ["".join(random.choices("abcdefgh", k=random.randint(2, 9))) for _ in range(997)]
        self.texts = [" ".join(random.choices(words, k=20_000)) for _ in range(16)]

    def __len__(self):
        return 8 * 127

    def __getitem__(self, index):
        words = re.findall(r"(?:a|b|c)\w+", self.texts[index % len(self.texts)])
        return torch.full((1024,), float(len(words))), index % 10


layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(1024, 4096), *layers, nn.Linear(4096, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

turn.take()
steps = 0
for x, y in DataLoader(Texts(), batch_size=8, num_workers=1, pin_memory=True):
    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(x.repeat(128, 1)), y.repeat(128))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
