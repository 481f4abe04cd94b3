# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""L-BFGS calls its closure several times within one step(): one step all the same."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(16 * 67, 512), torch.randn(16 * 67, 1))
model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=4)

steps = 0
for x, y in DataLoader(data, batch_size=16):
    x, y = x.repeat(16, 1), y.repeat(16, 1)

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    steps += 1
print(f"steps={steps} batches={steps}")
