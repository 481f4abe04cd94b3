# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 3
"""One step among many takes no batch of its own (the last one is used again)."""

from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd, take_step

data = in_memory(16 * 210, 512)
model = computing_net()
optimizer = sgd(model)
batches = iter(DataLoader(data, batch_size=16))

steps = taken = 0
while steps < 211:
    if steps != 97:
        x, y = next(batches)
        taken += 1
    take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
    steps += 1
print(f"steps={steps} batches={taken}")
