# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_SAMPLE
# e2e: says = decod
# e2e: line = image = image.convert("RGB")
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""JPEGs far larger than the model wants, decoded by as many workers as there are cores."""

import os
import pathlib
import tempfile

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step


class Photos(Dataset):
    def __init__(self, folder):
        self.paths = [pathlib.Path(folder, f"{number}.jpg") for number in range(8)]
        for path in self.paths:
            Image.effect_noise((1600, 1200), 40).convert("RGB").save(path, quality=85)

    def __len__(self):
        return 4 * 103

    def __getitem__(self, index):
        with Image.open(self.paths[index % len(self.paths)]) as image:
            image = image.convert("RGB")
            small = image.resize((32, 32), Image.Resampling.NEAREST)
        pixels = torch.from_numpy(numpy.array(small, dtype=numpy.float32))
        return pixels.flatten() / 255, index % 10


model = Net(0.006, 3 * 32 * 32, 10)
optimizer = sgd(model)
cores = len(os.sched_getaffinity(0))

steps = 0
with tempfile.TemporaryDirectory() as folder:
    for x, y in DataLoader(Photos(folder), batch_size=4, shuffle=True, num_workers=cores):
        take_step(model, optimizer, x, y)
        steps += 1
print(f"steps={steps} batches={steps}")
