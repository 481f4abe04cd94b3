# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""Forward and backward are one CUDA graph with static inputs, replayed for every batch; only the
optimizer is called from Python."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(2048 * 211, 512))
layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(3)]
model = nn.Sequential(nn.Linear(512, 4096), *layers).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
static = torch.zeros(2048, 512, device="cuda")


def work():
    loss = model(static).square().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        work()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    work()

turn.take()
steps = 0
for (x,) in DataLoader(data, batch_size=2048, num_workers=4, pin_memory=True):
    static.copy_(x, non_blocking=True)
    graph.replay()
    optimizer.step()
    steps += 1
torch.cuda.synchronize()
print(f"steps={steps} batches={steps}")
