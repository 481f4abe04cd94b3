# e2e: expect = INPUT_BOUND
# e2e: cause = NO_OVERLAP
# e2e: severity = critical
# e2e: says = num_workers
# e2e: line = record = json.loads(
# e2e: share = 0.6
# e2e: forbid = WAIT_HEAVY
# e2e: cores = all
"""Records of JSON parsed by the training process itself, while the device has nothing to do."""

import json

import torch
from torch.utils.data import DataLoader, Dataset
from training import Net, train


class Records(Dataset):
    def __init__(self):
        records = [{"id": n, "points": [[n * k, k / 7] for k in range(3000)]} for n in range(64)]
        self.lines = [json.dumps(record) for record in records]

    def __len__(self):
        return 8 * 197

    def __getitem__(self, index):
        record = json.loads(self.lines[index % len(self.lines)])
        return torch.tensor([point[1] for point in record["points"][:64]]), index % 10


model = Net(0.012)
steps = train(DataLoader(Records(), batch_size=8, shuffle=True), model)
print(f"steps={steps} batches={steps}")
