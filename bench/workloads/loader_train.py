"""A training whose DataLoader is set from the command line.

    loader_train.py DATASET COST [--batch N] [--step MS] [--compute] [--epoch N] [--steps N]
    [SETTING ...]

A SETTING is an argument of DataLoader: num_workers=2. The device is a sleep of MS milliseconds in
the forward or, with --compute, as much work on this process's core.
"""

import argparse
import ast
import time

import torch
from datasets import make_dataset
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler


class Net(nn.Module):
    def __init__(self, step_ms, compute):
        super().__init__()
        self.body = nn.Linear(64, 10)
        self.step_ms, self.compute = step_ms, compute

    def forward(self, x):
        if self.compute:
            until = time.thread_time_ns() + int(1e6 * self.step_ms)
            while time.thread_time_ns() < until:
                pass
        else:
            time.sleep(self.step_ms / 1e3)
        return self.body(x)


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset")
    parser.add_argument("cost", type=float)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--step", type=float, default=12)
    parser.add_argument("--compute", action="store_true")
    parser.add_argument("--epoch", type=int, help="batches in an epoch; without it there is one")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("settings", nargs="*")
    return parser.parse_intermixed_args()


def main():
    arguments = read_arguments()
    pairs = (text.split("=", 1) for text in arguments.settings)
    settings = {name: ast.literal_eval(value) for name, value in pairs}
    torch.manual_seed(1)
    torch.set_num_threads(1)
    length = arguments.batch * (arguments.epoch or arguments.steps)
    dataset = make_dataset(arguments.dataset, length, arguments.cost)
    if "batch_size" in settings and settings["batch_size"] is None:
        # The dataset makes a batch at once.
        settings["sampler"] = BatchSampler(SequentialSampler(dataset), arguments.batch, True)
    settings.setdefault("batch_size", arguments.batch)
    loader = DataLoader(dataset, **settings)
    model = Net(arguments.step, arguments.compute)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    while steps < arguments.steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


if __name__ == "__main__":
    main()
