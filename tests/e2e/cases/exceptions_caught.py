# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Bad batches raise in the forward or in the backward, are caught and skipped: no step."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd


class Fussy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bad):
        ctx.bad = bad
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.bad:
            raise ValueError("cannot differentiate this batch")
        return grad, None


data = in_memory(16 * 165, 512)
model = computing_net()
optimizer = sgd(model)

steps = skipped = 0
for i, (x, y) in enumerate(DataLoader(data, batch_size=16)):
    try:
        if i % 40 == 17:
            raise ValueError("corrupt batch")
        logits = Fussy.apply(model(x.repeat(6, 1)), i % 40 == 29)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, y.repeat(6)).backward()
    except ValueError:
        skipped += 1
        continue
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps + skipped}")
