# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: forbid = WAIT_HEAVY
# e2e: launch = bash launch_bash.sh
"""Started by a shell script, as on most clusters."""

from torch.utils.data import DataLoader
from training import Net, Records, train

model = Net(0.01)
steps = train(DataLoader(Records(4 * 71, sample_s=0.01), batch_size=4), model)
print(f"steps={steps}")
