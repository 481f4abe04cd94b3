# e2e: expect = INPUT_STRAGGLER
# e2e: rank = 1
# e2e: launch = torchrun 2
# e2e: forbid = COMPUTE_STRAGGLER
"""Rank 1 reads from a slower disk (40 ms a batch); under DDP rank 0 waits in its backward."""

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, Records, finish_ranks, start_ranks, train

rank = start_ranks()
data = Records(4 * 2 * 61, sample_s=0.01 if rank == 1 else 0)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.02))
steps = train(loader, model)
finish_ranks(rank, steps)
