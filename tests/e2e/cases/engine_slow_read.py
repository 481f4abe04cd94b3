# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_READ, TOO_FEW_THREADS
# e2e: says = leat's loader: reading takes
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""leat's own loader with one thread over rows that lie scattered in a file (Fortran order)."""

import pathlib
import tempfile

import leat
import numpy
from training import Net, sgd

ROWS, WIDTH = 48 * 1024, 512


folder = tempfile.TemporaryDirectory()
path = pathlib.Path(folder.name) / "x.npy"
numpy.save(path, numpy.asfortranarray(numpy.ones((ROWS, WIDTH), dtype=numpy.float32)))
loader = leat.DataLoader(leat.data.Npy(path), batch_size=1024, shuffle=True, num_threads=1)
assert loader.plan().runs_in_c
model = Net(0.002, WIDTH, 10)
optimizer = sgd(model)

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
