# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Two persistent workers prepare batches (20 ms each) behind a step of 60 ms, in two epochs: nothing
is exposed."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, train


class Records(Dataset):
    def __len__(self):
        return 8 * 55

    def __getitems__(self, indices):
        time.sleep(0.02)
        return [(torch.randn(64), index % 10) for index in indices]


model = Net(0.06)
loader = DataLoader(
    Records(), batch_size=8, num_workers=2, prefetch_factor=4, persistent_workers=True
)
steps = train(loader, model, epochs=2, max_steps=103)
print(f"steps={steps} batches={steps}")
