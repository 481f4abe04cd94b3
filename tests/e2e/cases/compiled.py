# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: compiles = 2
"""torch.compile (twice: the last batch is smaller) costs seconds in two steps, named apart."""

import torch
from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd, take_step

data = in_memory(16 * 210 + 5, 512)
model = computing_net()
optimizer = sgd(model)
compiled = torch.compile(model, backend="aot_eager")

steps = 0
for x, y in DataLoader(data, batch_size=16):
    take_step(compiled, optimizer, x.repeat(6, 1), y.repeat(6))
    steps += 1
print(f"steps={steps} batches={steps}")
