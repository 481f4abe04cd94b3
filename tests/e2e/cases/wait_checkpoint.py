# e2e: expect = WAIT_HEAVY
# e2e: says = checkpoint
# e2e: forbid = INPUT_BOUND, INTERMITTENT_STALL
"""torch.save to a slow store after every third step holds up the training."""

import io
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class SlowStore(io.BytesIO):
    """A bucket behind a slow link: each object costs 60 ms to close off."""

    def write(self, data):
        self.touched = True
        return super().write(data)

    def flush(self):
        if getattr(self, "touched", False):
            time.sleep(0.06)
            self.touched = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.01)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 131, 64), torch.randint(0, 10, (8 * 131,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 3 == 0:
        torch.save(model.state_dict(), SlowStore())
print(f"steps={steps}")
