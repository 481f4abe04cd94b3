# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""A small GPT in bfloat16, pinned batches, non_blocking copies, the loss read every 50 steps: all
as it should be."""

import torch
import turn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

tokens = TensorDataset(torch.randint(0, 8192, (32 * 71, 513)))
block = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
body = nn.TransformerEncoder(block, 6, enable_nested_tensor=False)
model = nn.Sequential(nn.Embedding(8192, 1024), body, nn.Linear(1024, 8192)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

turn.take()
steps = 0
for (x,) in DataLoader(tokens, batch_size=32, shuffle=True, num_workers=2, pin_memory=True):
    x = x.to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x[:, :-1])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 50 == 0:
        loss.item()
print(f"steps={steps} batches={steps}")
