# e2e: expect = WAIT_HEAVY
# e2e: says = metrics
# e2e: forbid = INPUT_BOUND
"""The script marks its metrics with leat.phase("metrics"): the verdict names them."""

import time

import leat
from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step

data = in_memory(8 * 107)
model = Net(0.012)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    take_step(model, optimizer, x, y)
    steps += 1
    with leat.phase("metrics"):
        time.sleep(0.025)
print(f"steps={steps}")
