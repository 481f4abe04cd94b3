# e2e: expect = INPUT_BOUND
# e2e: forbid = WAIT_HEAVY
# e2e: mistake = 7
"""A background thread fetches ahead, but too slowly (40 ms for a step of 10): a real wait."""

from torch.utils.data import DataLoader
from training import Net, Prefetcher, Records, train

model = Net(0.01)
steps = train(Prefetcher(DataLoader(Records(4 * 109, sample_s=0.01), batch_size=4)), model)
print(f"steps={steps}")
