# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, OOM_KILL
# e2e: signal = 9
# e2e: ended = killed
"""Dies by SIGKILL after 61 steps: what it recorded is not lost."""

import os
import signal

from torch.utils.data import DataLoader
from training import Net, Records, sgd, take_step

model = Net(0.01)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(Records(4 * 500, sample_s=0.008), batch_size=4):
    take_step(model, optimizer, x, y)
    steps += 1
    if steps == 61:
        print(f"steps={steps}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
