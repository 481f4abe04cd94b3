# e2e: expect = WAIT_HEAVY
# e2e: forbid = INPUT_BOUND
"""Every step posts its metrics to a slow tracking server (30 ms) before the next begins."""

import time

from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step


def log_metrics(step, loss):
    time.sleep(0.03)


data = in_memory(8 * 103)
model = Net(0.012)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = take_step(model, optimizer, x, y)
    steps += 1
    log_metrics(steps, loss.item())
print(f"steps={steps}")
