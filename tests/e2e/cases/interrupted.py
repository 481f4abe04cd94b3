# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: interrupt = press Ctrl-C
# e2e: exit = 130
# e2e: ended = interrupted
"""Ctrl-C in the terminal reaches leat and the training; the training stops in its own way."""

import sys
import time

from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step

data = in_memory(8 * 500)
model = Net(0.03)
optimizer = sgd(model)

steps = 0
try:
    for x, y in DataLoader(data, batch_size=8):
        take_step(model, optimizer, x, y)
        steps += 1
        if steps == 89:
            print("press Ctrl-C", flush=True)
            time.sleep(60)
except KeyboardInterrupt:
    print(f"steps={steps}", flush=True)
    sys.exit(130)
