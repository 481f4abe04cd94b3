"""What the cases of the verdict matrix train with: data, models, a step, a loop, ranks. A case holds
only the cause that leat must find, or what makes it healthy.

Times are sleeps where a case is not about the CPU: another program cannot make them much longer, and
two cases can run at the same time.
"""

import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, TensorDataset

torch.set_num_threads(1)


class Records(Dataset):
    """`count` samples of 64 numbers and a label, each of which takes `sample_s`."""

    def __init__(self, count, sample_s=0.0):
        self.count, self.sample_s = count, sample_s

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return torch.randn(64), index % 10


def in_memory(count, width=64):
    """The same as tensors, of which a sample takes microseconds."""
    return TensorDataset(torch.randn(count, width), torch.randint(0, 10, (count,)))


class Prefetcher:
    """A thread of the script's own that fetches ahead, up to `depth` batches."""

    def __init__(self, loader, depth=4):
        self.batches = queue.Queue(depth)
        threading.Thread(target=self.fill, args=(loader,), daemon=True).start()

    def fill(self, loader):
        for batch in loader:
            self.batches.put(batch)
        self.batches.put(None)

    def __iter__(self):
        while (batch := self.batches.get()) is not None:
            yield batch


class Net(nn.Module):
    """Its forward takes `forward_s` without the CPU, as a device would."""

    def __init__(self, forward_s, width=64, classes=10):
        super().__init__()
        self.forward_s = forward_s
        self.body = nn.Linear(width, classes)

    def forward(self, x):
        time.sleep(self.forward_s)
        return self.body(x)


def computing_net():
    """A model that computes on the CPU."""
    return nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def take_step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def train(loader, model, optimizer=None, epochs=1, max_steps=None, repeat=1):
    """Trains, on each batch `repeat` times over, and returns the number of steps."""
    optimizer = optimizer or sgd(model)
    steps = 0
    for _epoch in range(epochs):
        for x, y in loader:
            take_step(model, optimizer, x.repeat(repeat, 1), y.repeat(repeat))
            steps += 1
            if steps == max_steps:
                return steps
    return steps


def start_ranks():
    """This process becomes a rank of torchrun's; returns its number."""
    dist.init_process_group("gloo")
    return dist.get_rank()


def print_rank(rank, steps):
    """In one write, so that the lines of two ranks do not mix."""
    os.write(1, f"rank={rank} steps={steps}\n".encode())


def finish_ranks(rank, steps):
    print_rank(rank, steps)
    time.sleep(
        0.5
    )  # until Gloo's threads have released the last gradients: torch may abort otherwise
    dist.destroy_process_group()
