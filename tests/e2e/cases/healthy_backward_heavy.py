# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: says = backward
"""A plain multi-layer perceptron, data in memory: the backward is twice the forward."""

from torch.utils.data import DataLoader
from training import computing_net, in_memory, train

data = in_memory(16 * 199, 512)
loader = DataLoader(data, batch_size=16, shuffle=True)
model = computing_net()
steps = train(loader, model, repeat=8)
print(f"steps={steps}")
