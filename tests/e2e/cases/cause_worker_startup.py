# e2e: expect = INPUT_BOUND
# e2e: cause = WORKER_STARTUP
# e2e: says = persistent_workers
# e2e: forbid = WAIT_HEAVY
"""A dataset with 500 MB of articles, pickled to each of two workers that are spawned anew for each
epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Articles(Dataset):
    def __init__(self):
        self.articles = [f"{number:06d} " + "x" * 493 for number in range(1_000_000)]

    def __len__(self):
        return 8 * 11

    def __getitem__(self, index):
        return torch.full((64,), float(len(self.articles[index]))), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.015)
        return self.body(x)


def main():
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Articles(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    steps = 0
    for _epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    print(f"steps={steps} batches={steps}")


if __name__ == "__main__":
    main()
