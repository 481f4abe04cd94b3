# e2e: expect = INPUT_BOUND
# e2e: cause = PER_SAMPLE_OVERHEAD
# e2e: says = fetched one by one.*BatchSampler\(RandomSampler\(ds\), 4096, True\), batch_size=None
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Tensors in memory, fetched one by one and stacked again, 4096 to a batch."""

from torch.utils.data import DataLoader
from training import Net, in_memory, train

data = in_memory(4096 * 43)
loader = DataLoader(data, batch_size=4096, shuffle=True)
model = Net(0.012)
steps = train(loader, model, epochs=3)
print(f"steps={steps} batches={steps}")
