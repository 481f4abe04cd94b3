# e2e: expect = INPUT_BOUND
# e2e: cause = WORKER_STARTUP
# e2e: says = persistent_workers
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Epochs of seven steps, new forked workers for each, and a first sample that reads an index."""

import json
import pathlib
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step


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


model = Net(0.015)
optimizer = sgd(model)

steps = 0
with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader(Indexed(folder), batch_size=8, num_workers=2)
    for _epoch in range(19):
        for x, y in loader:
            take_step(model, optimizer, x, y)
            steps += 1
print(f"steps={steps} batches={steps}")
