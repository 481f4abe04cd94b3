# e2e: expect = COMPUTE_BOUND, BALANCED, HIGH_CPU
# e2e: forbid = INPUT_BOUND, WAIT_HEAVY, THROTTLED, LOW_GPU_UTILIZATION, HIGH_GPU_MEM, HIGH_GPU_TEMP
# e2e: gpus = own
"""One of two GPUs is this training's, by the word of NVIDIA's library: that one alone is sampled."""

from torch.utils.data import DataLoader
from training import Net, in_memory, train

data = in_memory(8 * 53)
model = Net(0.02)
steps = train(DataLoader(data, batch_size=8), model)
print(f"steps={steps}")
