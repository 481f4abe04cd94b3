# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: launch = torchrun 2
# e2e: forbid = INPUT_STRAGGLER, COMPUTE_STRAGGLER, STRAGGLER
"""Both ranks read equally slowly: the run is input-bound, and no rank is a straggler."""

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from training import Net, Records, finish_ranks, start_ranks, train

rank = start_ranks()
data = Records(4 * 2 * 73, sample_s=0.01)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(Net(0.02))
steps = train(loader, model)
finish_ranks(rank, steps)
