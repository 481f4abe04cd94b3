# e2e: expect = INPUT_BOUND
# e2e: cause = SLOW_HANDOVER
# e2e: says = Handing over a batch takes.*a few large tensors: no Python lists, dicts
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Batches of a hundred thousand small dictionaries: quick to look up, slow to pickle and unpickle."""

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, sgd, take_step


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


model = Net(0.012)
optimizer = sgd(model)
loader = DataLoader(Pages(), batch_size=64, num_workers=2, collate_fn=list)

steps = 0
for pages in loader:
    x = torch.tensor([[float(word["left"]) for word in page[:64]] for page in pages])
    take_step(model, optimizer, x, torch.arange(len(pages)) % 10)
    steps += 1
print(f"steps={steps} batches={steps}")
