# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Every pass over the loader is left early by break; the batch in hand is dropped."""

from torch.utils.data import DataLoader
from training import computing_net, in_memory, sgd, take_step

data = in_memory(16 * 500, 512)
loader = DataLoader(data, batch_size=16, shuffle=True)
model = computing_net()
optimizer = sgd(model)

steps = 0
for length in (41, 53, 57):
    for i, (x, y) in enumerate(loader):
        if i == length:
            break
        take_step(model, optimizer, x.repeat(6, 1), y.repeat(6))
        steps += 1
print(f"steps={steps}")
