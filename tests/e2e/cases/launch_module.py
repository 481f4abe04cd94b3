# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY
# e2e: launch = module
"""An IterableDataset that parses slowly in the training process, which python3 -m started."""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset
from training import Net, train


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(4 * 73):
            time.sleep(0.01)
            yield torch.randn(64), index % 10


model = Net(0.01)
steps = train(DataLoader(Stream(), batch_size=4), model, torch.optim.Adam(model.parameters()))
print(f"steps={steps} batches={steps}")
