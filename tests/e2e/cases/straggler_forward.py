# e2e: expect = COMPUTE_STRAGGLER
# e2e: rank = 0
# e2e: says = forward
# e2e: launch = torchrun 2
# e2e: forbid = INPUT_STRAGGLER, INPUT_BOUND
"""Rank 0 has the slower forward (a throttled device); rank 1 waits for it under DDP."""

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, finish_ranks, in_memory, start_ranks, train

rank = start_ranks()
data = in_memory(8 * 2 * 61)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.06 if rank == 0 else 0.02))
steps = train(loader, model)
finish_ranks(rank, steps)
