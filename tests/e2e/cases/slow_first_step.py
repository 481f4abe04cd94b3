# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 2
"""A first step of 300 ms (lazy set-up) among 30 healthy ones: warm-up, not a wait."""

import time

from torch import nn
from torch.utils.data import DataLoader
from training import in_memory, train


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.ready = False

    def forward(self, x):
        if not self.ready:
            time.sleep(0.3)
            self.ready = True
        time.sleep(0.04)
        return self.body(x)


data = in_memory(8 * 31)
model = Net()
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
