"""How many graphs torch.compile makes of a training, and of how many calls.

    graphs.py RESULT

The backend only counts and runs the graph unchanged, so no compiler is needed.
"""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

calls = []


def counting(graph, inputs):
    calls.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
    return graph.forward


torch.manual_seed(1)
torch.set_num_threads(1)
blocks = [m for _ in range(12) for m in (nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Tanh())]
model = nn.Sequential(*blocks)
compiled = torch.compile(model, backend=counting)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=8):
    optimizer.zero_grad()
    compiled(x).sum().backward()
    optimizer.step()
with open(sys.argv[1], "w") as f:
    json.dump({"graphs": len(calls), "calls": calls}, f)
