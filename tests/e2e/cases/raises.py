# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, OOM_KILL
# e2e: exit = 1
# e2e: ended = failed
# e2e: stderr = RuntimeError: loss is not finite
"""Fails with an exception in its 68th step: the verdict on the first 67 is still given."""

from torch import nn
from torch.utils.data import DataLoader
from training import Net, Records, sgd

model = Net(0.01)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(Records(4 * 500, sample_s=0.008), batch_size=4):
    loss = nn.functional.cross_entropy(model(x), y)
    if steps == 67:
        print(f"steps={steps}")
        raise RuntimeError("loss is not finite")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
