"""A small image training that is slow for the most common reason.

    leat run examples/slow_train.py                 num_workers=0: the model waits for each batch
    leat run examples/slow_train.py --workers 2     the same training, batches are read ahead

256 JPEG files are made at first use and kept. Every sample is read, decoded, cropped and flipped in
__getitem__. The files are on a local disk, so a sleep of 3 ms per file stands for the latency of
network storage. The script does not use leat.
"""

import argparse
import os
import pathlib
import random
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

REMOTE_READ_S = 0.003  # a small file on NFS or in an object store
IMAGES, CLASSES = 256, 8


def make_images(folder):
    """Coloured noise with a gradient that depends on the class."""
    if folder.exists():
        return
    made = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
    rng = np.random.default_rng(0)
    ramp = np.linspace(0, 160, 160)[None, :, None]
    for i in range(IMAGES):
        label = i % CLASSES
        pixels = rng.integers(0, 90, (160, 160, 3)) + np.rot90(ramp * (label + 1) / CLASSES, label)
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        image.save(made / f"{label}_{i:04}.jpg", quality=90)
    try:
        made.rename(folder)
    except OSError:  # another process was first
        pass


class JpegFolder(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        time.sleep(REMOTE_READ_S)
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
        left, top = random.randrange(160 - 64), random.randrange(160 - 64)
        crop = torch.from_numpy(pixels[top : top + 64, left : left + 64]).permute(2, 0, 1) / 255
        return crop.flip(2) if random.random() < 0.5 else crop, int(path.name[0])


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(48, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(48 * 16, CLASSES),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=0, help="num_workers of the DataLoader")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--data", type=pathlib.Path, help="where the images are made")
    options = parser.parse_args()
    folder = options.data
    if folder is None:
        folder = pathlib.Path(tempfile.gettempdir()) / f"slow_train-{os.getuid()}"
    make_images(folder)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        JpegFolder(folder),
        batch_size=16,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        total = 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
