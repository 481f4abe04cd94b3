# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_READ, TOO_FEW_THREADS
# e2e: says = leat's loader: reading takes
# e2e: forbid = WAIT_HEAVY
"""leat's own loader with one thread over rows that lie scattered in a file (Fortran order)."""

import pathlib
import tempfile
import time

import leat
import numpy
import torch
from torch import nn

torch.set_num_threads(1)
ROWS, WIDTH = 48 * 1024, 512


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(WIDTH, 10)

    def forward(self, x):
        time.sleep(0.002)
        return self.body(x)


folder = tempfile.TemporaryDirectory()
path = pathlib.Path(folder.name) / "x.npy"
numpy.save(path, numpy.asfortranarray(numpy.ones((ROWS, WIDTH), dtype=numpy.float32)))
loader = leat.DataLoader(leat.data.Npy(path), batch_size=1024, shuffle=True, num_threads=1)
assert loader.plan().runs_in_c
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for _epoch in range(5):
    for x in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
folder.cleanup()
print(f"steps={steps} batches={steps}")
