# e2e: expect = INPUT_BOUND
# e2e: cause = WORKER_STARTUP
# e2e: says = persistent_workers
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""A dataset with 500 MB of articles, pickled to each of two workers that are spawned again for each
epoch."""

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step


class Articles(Dataset):
    def __init__(self):
        self.articles = [f"{number:06d} " + "x" * 493 for number in range(1_000_000)]

    def __len__(self):
        return 8 * 11

    def __getitem__(self, index):
        return torch.full((64,), float(len(self.articles[index]))), index % 10


def main():
    model = Net(0.015)
    optimizer = sgd(model)
    loader = DataLoader(Articles(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    steps = 0
    for _epoch in range(3):
        for x, y in loader:
            take_step(model, optimizer, x, y)
            steps += 1
    print(f"steps={steps} batches={steps}")


if __name__ == "__main__":
    main()
