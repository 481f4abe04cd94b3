# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 9
# e2e: forbid = LOW_GPU_UTILIZATION, MODERATE_GPU_UTILIZATION, HIGH_GPU_MEM, HIGH_GPU_TEMP
# e2e: gpus = foreign
"""Trains on the CPU: whatever GPUs this host has are foreign, and nothing is reported about them."""

from torch.utils.data import DataLoader
from training import Net, in_memory, train

data = in_memory(8 * 139)
model = Net(0.02)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
