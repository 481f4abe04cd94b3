# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""leat's own loader, whose threads have every batch ready long before it is asked for."""

import leat
from training import Net, in_memory, train

data = in_memory(256 * 101, 256)
loader = leat.DataLoader(data, batch_size=256, shuffle=True)
assert loader.plan().runs_in_c
model = Net(0.02, 256, 10)
steps = train(loader, model, epochs=2)
print(f"steps={steps} batches={steps}")
