# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 7
"""A background thread fetches ahead (8 ms per batch) behind a step of 30 ms: no wait."""

from torch.utils.data import DataLoader
from training import Net, Prefetcher, Records, train

model = Net(0.03)
steps = train(Prefetcher(DataLoader(Records(4 * 113, sample_s=0.002), batch_size=4)), model)
print(f"steps={steps}")
