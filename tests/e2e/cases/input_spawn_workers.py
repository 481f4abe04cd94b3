# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: forbid = WAIT_HEAVY
"""Workers started by spawn, each 120 ms a batch: seen like forked ones."""

from torch.utils.data import DataLoader
from training import Net, Records, train


def main():
    model = Net(0.012)
    loader = DataLoader(
        Records(4 * 89, sample_s=0.03), batch_size=4, num_workers=2, multiprocessing_context="spawn"
    )
    steps = train(loader, model)
    print(f"steps={steps} batches={steps}")


if __name__ == "__main__":
    main()
