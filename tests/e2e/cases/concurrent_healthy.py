# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 8
# e2e: beside = concurrent_starved
"""Runs at the same time as concurrent_starved.py on this host, and must see only itself."""

from torch.utils.data import DataLoader
from training import Net, in_memory, train

data = in_memory(8 * 167)
model = Net(0.03)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps} batches={steps}")
