# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 3
"""Every batch is used for two optimizer steps: half of the steps have no fetch."""

from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd, take_step

data = in_memory(16 * 100, 512)
model = computing_net()
optimizer = sgd(model)

steps = taken = 0
for x, y in DataLoader(data, batch_size=16):
    taken += 1
    for _ in range(2):
        take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
        steps += 1
        if steps == 199:
            break
print(f"steps={steps} batches={taken}")
