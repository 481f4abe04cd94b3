# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
# e2e: mistake = 4
# e2e: forbid = INSUFFICIENT_DATA
"""A language model in the manner of nanoGPT: get_batch() slices one array, no DataLoader."""

import torch
from torch import nn

torch.manual_seed(7)
tokens = torch.randint(0, 96, (50_000,))
block_size, batch_size = 64, 12


def get_batch():
    starts = torch.randint(len(tokens) - block_size - 1, (batch_size,))
    x = torch.stack([tokens[i : i + block_size] for i in starts])
    y = torch.stack([tokens[i + 1 : i + 1 + block_size] for i in starts])
    return x, y


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(96, 128)
        self.block = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.head = nn.Linear(128, 96)

    def forward(self, x, y):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        logits = self.head(self.block(self.embed(x), src_mask=mask, is_causal=True))
        return nn.functional.cross_entropy(logits.view(-1, 96), y.view(-1))


model = TinyGPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
x, y = get_batch()
steps = 0
while steps < 127:
    loss = model(x, y)
    x, y = get_batch()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    steps += 1
print(f"steps={steps}")
