# e2e: expect = INPUT_BOUND
# e2e: cause = UNEVEN_WORKERS
# e2e: worker = 2
# e2e: line = record = shard.read(RECORD)
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Four workers with a shard each, one of which was left compressed: all wait for its reader."""

import bz2
import os
import pathlib
import tempfile

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from training import Net, sgd, take_step

RECORD = 256 * 1024


class Shards(IterableDataset):
    def __init__(self, folder):
        self.paths = [pathlib.Path(folder, f"{number}.bin") for number in range(4)]
        self.paths[2] = self.paths[2].with_suffix(".bz2")
        for path in self.paths:
            with self.open(path, "wb") as shard:
                shard.write(os.urandom(32 * RECORD))

    def open(self, path, mode):
        return (bz2.open if path.suffix == ".bz2" else open)(path, mode)

    def __iter__(self):
        for _ in range(4):
            with self.open(self.paths[get_worker_info().id], "rb") as shard:
                for index in range(32):
                    record = shard.read(RECORD)
                    pixels = torch.frombuffer(bytearray(record[:64]), dtype=torch.uint8)
                    yield pixels / 255, index % 10


model = Net(0.007)
optimizer = sgd(model)

steps = 0
with tempfile.TemporaryDirectory() as folder:
    for x, y in DataLoader(Shards(folder), batch_size=4, num_workers=4):
        take_step(model, optimizer, x, y)
        steps += 1
print(f"steps={steps} batches={steps}")
