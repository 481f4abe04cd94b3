# e2e: expect = COMPUTE_BOUND
# e2e: healthy = yes
# e2e: mistake = 5
# e2e: says = forward
"""model.forward(x) is called directly, so no module hook would ever see it."""

from torch import nn
from torch.utils.data import DataLoader
from training import Net, in_memory, sgd

data = in_memory(8 * 149, 128)
model = Net(0.02, 128, 10)
optimizer = sgd(model)

steps = 0
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.cross_entropy(model.forward(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps}")
