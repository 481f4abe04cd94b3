# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: signal = 2
# e2e: ended = interrupted
# e2e: stderr = KeyboardInterrupt
"""SIGINT without a handler: Python ends by the signal after its traceback."""

import os
import signal
import time

from torch.utils.data import DataLoader
from training import Net, in_memory, sgd, take_step

data = in_memory(8 * 500)
model = Net(0.03)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    take_step(model, optimizer, x, y)
    steps += 1
    if steps == 83:
        print(f"steps={steps}", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
