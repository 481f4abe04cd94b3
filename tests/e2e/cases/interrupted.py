# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: interrupt = press Ctrl-C
# e2e: exit = 130
# e2e: ended = interrupted
"""Ctrl-C in the terminal reaches leat and the training; the training stops in its own way."""

import sys
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
try:
    for x, y in DataLoader(data, batch_size=8):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 89:
            print("press Ctrl-C", flush=True)
            time.sleep(60)
except KeyboardInterrupt:
    print(f"steps={steps}", flush=True)
    sys.exit(130)
