# e2e: expect = INSUFFICIENT_DATA
# e2e: healthy = yes
# e2e: says = torch
# e2e: steps = none
# e2e: stdout = \d+
"""A script without torch: it just runs, and the report says why there is no verdict."""

import time

total = 0
for _ in range(50):
    total += sum(j * j for j in range(1000))
    time.sleep(0.01)
print(total)
