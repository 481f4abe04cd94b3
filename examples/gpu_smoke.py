"""A small training on the GPU: a few seconds, a known number of steps, one loader with workers.

It prints the number of steps, to compare with the number that `leat run` reports.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=211, help="a prime number, easy to recognise")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
    loader = DataLoader(
        data, batch_size=64, shuffle=True, num_workers=options.workers, pin_memory=device == "cuda"
    )
    model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    steps = 0
    while steps < options.steps:
        for x, y in loader:
            if steps == options.steps:
                break
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
    print(f"device={device} steps={steps} loss={loss.item():.4f}")


if __name__ == "__main__":
    main()
