# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 10
# e2e: before = --work-ms 60
# e2e: after = --work-ms 60
# e2e: compare = EQUIVALENT, INCONCLUSIVE
# e2e: compare_exit = 0
# e2e: cores = all
"""Two CPU-only runs of the same work: equivalent, with statistics rather than a bare ratio. On a
machine whose load changes between the two, undecided is right too; a change never is."""

import argparse

from torch.utils.data import DataLoader
from training import Net, in_memory, train

parser = argparse.ArgumentParser()
parser.add_argument("--work-ms", type=float, required=True)
options = parser.parse_args()
data = in_memory(8 * 81)
model = Net(options.work_ms / 1000)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
