# e2e: expect = COMPUTE_BOUND, BALANCED
# e2e: healthy = yes
"""A GAN: discriminator and generator each step once a round, and a round is one step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(16 * 137, 256))
generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256))
discriminator = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4)
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4)
criterion = nn.BCEWithLogitsLoss()

rounds = 0
for (real,) in DataLoader(data, batch_size=16):
    real = real.repeat(8, 1)
    noise = torch.randn(len(real), 64)
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

    discriminator_optimizer.zero_grad()
    fake = generator(noise)
    loss = criterion(discriminator(real), ones) + criterion(discriminator(fake.detach()), zeros)
    loss.backward()
    discriminator_optimizer.step()

    generator_optimizer.zero_grad()
    criterion(discriminator(fake), ones).backward()
    generator_optimizer.step()
    rounds += 1
print(f"steps={rounds} batches={rounds}")
