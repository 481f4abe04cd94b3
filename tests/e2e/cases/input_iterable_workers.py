# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: forbid = WAIT_HEAVY
"""An IterableDataset split over two workers of a fork server, each too slow for the step."""

import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from training import Net, train


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id, 4 * 82, info.num_workers):
            time.sleep(0.03)
            yield torch.randn(64), index % 10


def main():
    model = Net(0.012)
    loader = DataLoader(Stream(), batch_size=4, num_workers=2, multiprocessing_context="forkserver")
    steps = train(loader, model, torch.optim.Adam(model.parameters()), max_steps=79)
    print(f"steps={steps}")


if __name__ == "__main__":
    main()
