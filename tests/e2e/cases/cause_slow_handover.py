# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_HANDOVER
# e2e: says = Handing a batch over takes.*a few large tensors: no Python lists, dicts
# e2e: forbid = WAIT_HEAVY
"""Batches of a hundred thousand small dictionaries: quick to look up, slow to pickle and unpickle."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Pages(Dataset):
    def __init__(self):
        self.pages = [
            [{"left": n, "top": n % 97, "text": f"word {n * page}"} for n in range(1500)]
            for page in range(64)
        ]

    def __len__(self):
        return 64 * 53

    def __getitem__(self, index):
        return self.pages[index % len(self.pages)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Pages(), batch_size=64, num_workers=2, collate_fn=list)

steps = 0
for pages in loader:
    x = torch.tensor([[float(word["left"]) for word in page[:64]] for page in pages])
    loss = nn.functional.cross_entropy(model(x), torch.arange(len(pages)) % 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
