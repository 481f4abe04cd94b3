# e2e: expect = COMPUTE_BOUND, BALANCED, HIGH_CPU
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY, THROTTLED, LOW_GPU_UTILIZATION, HIGH_GPU_MEM, HIGH_GPU_TEMP
# e2e: gpus = own
"""One of two GPUs is this training's, by the word of NVIDIA's library: that one alone is sampled."""

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
        time.sleep(0.02)
        return self.body(x)


data = TensorDataset(torch.randn(8 * 53, 64), torch.randint(0, 10, (8 * 53,)))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
