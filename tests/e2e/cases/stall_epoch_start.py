# e2e: expect = INTERMITTENT_STALL
# e2e: says = epoch
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY
"""Workers are started afresh for each of three epochs and need 1.2 s to set up their dataset."""

import time

from torch.utils.data import DataLoader
from training import Net, in_memory, train


def open_archive(worker_id):
    time.sleep(1.2)


data = in_memory(8 * 73)
loader = DataLoader(data, batch_size=8, num_workers=1, worker_init_fn=open_archive)
model = Net(0.035)
steps = train(loader, model, epochs=3, max_steps=211)
print(f"steps={steps} batches={steps}")
