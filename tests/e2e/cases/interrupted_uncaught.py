# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: signal = 2
# e2e: ended = interrupted
# e2e: stderr = KeyboardInterrupt
"""SIGINT that nobody catches: Python dies of the signal after its traceback."""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.03)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 500, 64), torch.randint(0, 10, (8 * 500,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps == 83:
        print(f"steps={steps}", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
