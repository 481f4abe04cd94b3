# e2e: expect = INPUT_BOUND
# e2e: severity = warning
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, MEMORY_CREEP
"""Only 13 steps, most of their time input: a warning, but too few for a critical one."""

from torch import nn
from torch.utils.data import DataLoader
from training import Net, Records, sgd

model = Net(0.05)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(Records(4 * 13, sample_s=0.05), batch_size=4):
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
print(f"steps={steps}")
