# e2e: expect = WAIT_HEAVY
# e2e: says = checkpoint
# e2e: forbid = INPUT_BOUND, INTERMITTENT_STALL
"""torch.save to a slow store after every third step holds up the training."""

import io
import time

import torch
from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step


class SlowStore(io.BytesIO):
    """A bucket behind a slow link: each object costs 60 ms to close off."""

    def write(self, data):
        self.touched = True
        return super().write(data)

    def flush(self):
        if getattr(self, "touched", False):
            time.sleep(0.06)
            self.touched = False


data = in_memory(8 * 131)
model = Net(0.01)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    take_step(model, optimizer, x, y)
    steps += 1
    if steps % 3 == 0:
        torch.save(model.state_dict(), SlowStore())
print(f"steps={steps}")
