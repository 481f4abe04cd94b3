# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""An inference pass without any optimizer: each batch is a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(8 * 173, 512))
model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(40)]).eval()

steps = 0
scores = []
with torch.inference_mode():
    for (x,) in DataLoader(data, batch_size=8):
        scores.append(model(x.repeat(8, 1)).mean())
        steps += 1
print(f"steps={steps} batches={steps}")
