# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: forbid = WAIT_HEAVY
"""Workers started by a fork server, each 120 ms a batch: seen like forked ones."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __len__(self):
        return 4 * 73

    def __getitem__(self, index):
        time.sleep(0.03)
        return torch.randn(64), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


def main():
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Records(), batch_size=4, num_workers=2, multiprocessing_context="forkserver"
    )
    steps = 0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"steps={steps} batches={steps}")


if __name__ == "__main__":
    main()
