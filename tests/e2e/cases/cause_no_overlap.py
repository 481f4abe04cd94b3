# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: says = num_workers
# e2e: line = record = json.loads(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
"""Records of JSON parsed by the training process itself, while the device has nothing to do."""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Records(Dataset):
    def __init__(self):
        records = [{"id": n, "points": [[n * k, k / 7] for k in range(3000)]} for n in range(64)]
        self.lines = [json.dumps(record) for record in records]

    def __len__(self):
        return 8 * 197

    def __getitem__(self, index):
        record = json.loads(self.lines[index % len(self.lines)])
        return torch.tensor([point[1] for point in record["points"][:64]]), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 10)

    def forward(self, x):
        time.sleep(0.012)
        return self.body(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = 0
for x, y in DataLoader(Records(), batch_size=8, shuffle=True):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
print(f"steps={steps} batches={steps}")
