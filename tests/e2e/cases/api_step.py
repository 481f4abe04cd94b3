# e2e: expect = INPUT_BOUND
# e2e: forbid = INSUFFICIENT_DATA
"""No torch optimizer at all: the loop calls leat.step(), and its loader is wrapped."""

import time

import leat
import torch


def shards():
    for index in range(109):
        time.sleep(0.03)
        yield torch.full((4, 64), float(index))


weight = torch.zeros(64, 10, requires_grad=True)
steps = 0
for x in leat.wrap_loader(shards()):
    time.sleep(0.01)
    loss = (x @ weight).square().mean()
    loss.backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
        weight.grad = None
    leat.step()
    steps += 1
print(f"steps={steps} batches={steps}")
