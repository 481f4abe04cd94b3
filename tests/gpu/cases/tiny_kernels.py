# e2e: expect = LAUNCH_BOUND
# e2e: says = torch\.compile
# e2e: forbid = INPUT_BOUND, H2D_BOUND, WAIT_HEAVY
"""A recurrence written out in Python: a thousand element-wise operations on small tensors, each
over long before the next is launched."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Recurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(256))
        self.gain = nn.Parameter(torch.rand(256))

    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            state = torch.tanh(state * self.decay + x[:, t] * self.gain)
        return state.mean()


data = TensorDataset(torch.randn(32 * 101, 200, 256))
model = Recurrence().to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=32, pin_memory=True, num_workers=4):
    x = x.to("cuda", non_blocking=True)
    loss = model(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
