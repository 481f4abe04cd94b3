# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: severity = critical
# e2e: says = num_workers
# e2e: line = raw = zlib.decompress(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY, H2D_BOUND, LAUNCH_BOUND
"""One worker inflates samples and is never done in time; the other cores and the GPU wait."""

import random
import zlib

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(1)


class Packed(Dataset):
    def __init__(self):
        text = bytes(random.choices(range(64), k=1 << 18))
        self.packed = [zlib.compress(text[i:] + text[:i] + text + text) for i in range(16)]

    def __len__(self):
        return 8 * 127

    def __getitem__(self, index):
        raw = zlib.decompress(self.packed[index % len(self.packed)])
        return torch.frombuffer(bytearray(raw[:1024]), dtype=torch.uint8).float(), index % 10


layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(1024, 4096), *layers, nn.Linear(4096, 10)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

turn.take()
steps = 0
for x, y in DataLoader(Packed(), batch_size=8, num_workers=1, pin_memory=True):
    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(x.repeat(128, 1)), y.repeat(128))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
