# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: compiles = 2
"""torch.compile (twice: the last batch is smaller) costs seconds in two steps, named apart."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(16 * 210 + 5, 512), torch.randint(0, 10, (16 * 210 + 5,)))
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compiled = torch.compile(model, backend="aot_eager")

steps = 0
for x, y in DataLoader(data, batch_size=16):
    loss = nn.functional.cross_entropy(compiled(x.repeat(6, 1)), y.repeat(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
