# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 10
# e2e: before = --work-ms 40
# e2e: after = --work-ms 40
# e2e: compare = EQUIVALENT, INCONCLUSIVE
# e2e: compare_exit = 0
"""Two CPU-only runs of the same work: equivalent, with statistics rather than a bare ratio. On a
machine whose load changes between the two, undecided is right too; a change never is."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--work-ms", type=float, required=True)
options = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(options.work_ms / 1000)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 151, 64), torch.randint(0, 10, (8 * 151,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
