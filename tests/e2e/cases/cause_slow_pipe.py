# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: line = record = stream.read(RECORD)
# e2e: share = 0.6
# e2e: says = num_workers
# e2e: forbid = WAIT_HEAVY
"""Shards that come through a pipe each, as from a bucket, at 1.6 MB/s: more pipes, more data."""

import subprocess
import sys

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from training import Net, train

RECORD = 32 * 1024
BUCKET = """
import os, time
while True:
    os.write(1, bytes(range(256)) * 32)
    time.sleep(0.005)
"""


class Shards(IterableDataset):
    def __iter__(self):
        command = [sys.executable, "-S", "-c", BUCKET]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as bucket:
            stream = bucket.stdout
            for index in range(4 * 61):
                record = stream.read(RECORD)
                pixels = torch.frombuffer(bytearray(record), dtype=torch.uint8)
                yield pixels[:64] / 255, (index + get_worker_info().id) % 10
            bucket.kill()


model = Net(0.012)
steps = train(DataLoader(Shards(), batch_size=4, num_workers=2), model)
print(f"steps={steps} batches={steps}")
