# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 10
# e2e: before = --work-ms 20
# e2e: after = --work-ms 40
# e2e: compare = REGRESSION
# e2e: compare_exit = 3
"""Two CPU-only runs, the second twice as slow per step: a regression, and exit status 3."""

import argparse

from torch.utils.data import DataLoader
from training import Net, in_memory, train

parser = argparse.ArgumentParser()
parser.add_argument("--work-ms", type=float, required=True)
options = parser.parse_args()
data = in_memory(8 * 101)
model = Net(options.work_ms / 1000)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
