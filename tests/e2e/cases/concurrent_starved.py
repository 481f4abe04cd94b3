# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY, INPUT_STRAGGLER, COMPUTE_STRAGGLER, STRAGGLER
# e2e: mistake = 8
# e2e: beside = concurrent_healthy
"""Runs at the same time as concurrent_healthy.py on this host, and must see only itself."""

from torch.utils.data import DataLoader
from training import Net, Records, train

model = Net(0.01)
steps = train(DataLoader(Records(4 * 103, sample_s=0.01), batch_size=4), model)
print(f"steps={steps} batches={steps}")
