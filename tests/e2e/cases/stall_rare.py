# e2e: expect = INTERMITTENT_STALL
# e2e: forbid = WAIT_HEAVY, INPUT_BOUND
"""One step in a hundred is held up for 700 ms; all others are healthy."""

import time

from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step

data = in_memory(8 * 401)
model = Net(0.012)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    take_step(model, optimizer, x, y)
    steps += 1
    if steps % 100 == 90 and steps < 300:
        time.sleep(0.7)
print(f"steps={steps}")
