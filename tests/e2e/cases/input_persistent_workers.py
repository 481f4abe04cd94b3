# e2e: expect = INPUT_BOUND
# e2e: cause = TOO_FEW_WORKERS
# e2e: forbid = WAIT_HEAVY, INTERMITTENT_STALL
"""Persistent workers over two epochs, too slow in both: not a matter of their start-up."""

from torch.utils.data import DataLoader
from training import Net, Records, train

model = Net(0.012)
loader = DataLoader(
    Records(4 * 42, sample_s=0.03), batch_size=4, num_workers=2, persistent_workers=True
)
steps = train(loader, model, epochs=2, max_steps=83)
print(f"steps={steps} batches={steps}")
