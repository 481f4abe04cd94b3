# e2e: expect = INPUT_BOUND
# e2e: cause = WORKER_STARTUP
# e2e: says = persistent_workers
# e2e: forbid = WAIT_HEAVY
"""Epochs of seven steps, workers forked anew for each, and a first sample that reads an index."""

import json
import pathlib
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Indexed(Dataset):
    def __init__(self, folder):
        self.path = pathlib.Path(folder, "index.json")
        self.path.write_text(
            json.dumps([{"name": str(n), "label": n % 10} for n in range(200_000)])
        )
        self.index = None

    def __len__(self):
        return 8 * 7

    def __getitem__(self, index):
        if self.index is None:
            self.index = json.loads(self.path.read_text())
        return torch.full((64,), float(index)), self.index[index]["label"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.015)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader(Indexed(folder), batch_size=8, num_workers=2)
    for _epoch in range(19):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
print(f"steps={steps} batches={steps}")
