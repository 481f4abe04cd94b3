# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: exit = 7
# e2e: ended = failed
# e2e: stdin = rate 0.25
# e2e: stdout = read: rate 0.25
# e2e: stderr = a word on stderr
"""Reads stdin, writes stdout and stderr, and exits with 7: all of it passes through."""

import sys

from torch.utils.data import DataLoader
from training import Net, in_memory, train

print("read:", sys.stdin.readline().strip())
print("a word on stderr", file=sys.stderr)


data = in_memory(8 * 59)
model = Net(0.02)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
sys.exit(7)
