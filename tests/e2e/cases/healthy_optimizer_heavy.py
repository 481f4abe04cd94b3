# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = optimizer
"""A wide embedding with dense AdamW: most of the step is the optimizer's own arithmetic."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import train

data = TensorDataset(torch.randint(0, 8000, (4 * 131, 4)), torch.randint(0, 10, (4 * 131,)))
loader = DataLoader(data, batch_size=4)
model = nn.Sequential(nn.Embedding(8000, 256), nn.Flatten(), nn.Linear(1024, 10))
steps = train(loader, model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False))
print(f"steps={steps}")
