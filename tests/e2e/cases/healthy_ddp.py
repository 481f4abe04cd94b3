# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: launch = torchrun 2
"""Two even ranks under DistributedDataParallel: no rank waits for another."""

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, finish_ranks, in_memory, start_ranks, train

rank = start_ranks()
data = in_memory(8 * 2 * 97)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.04))
steps = train(loader, model)
finish_ranks(rank, steps)
