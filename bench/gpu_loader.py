#!/usr/bin/env python3
"""Batches on the GPU: leat.DataLoader and torch's. Ends with a table.

    PYTHONPATH=build/python python3 bench/gpu_loader.py [--scale 1.0] [--only JOB ...]

Times are medians of five epochs after a warm-up epoch, in which memory is page-locked. Of torch's
DataLoader two batches are measured and scaled to the epoch by their samples. Training on tokens and
training on a cached batch alternate, because the clock of a GPU changes as it warms. So do epochs
of images and plain copies; there are more of them, because one takes at most 50 ms and other users
of the host disturb some. The idle time of the GPU beside work of 5 ms per batch is measured with a
seeded loader, which makes the next epoch's first batches while the last batch is in use; without a
seed torch draws the order when the epoch begins.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

import leat
import numpy
import torch
from leat import data as leat_data

EPOCHS, SHORT_EPOCHS = 5, 15
WIDE = 100
LENGTH, SEQUENCES, VOCABULARY = 2048, 256, 1024  # tokens of a sequence, sequences of a batch
JOBS = ("table", "images", "tokens")
rows = []


def row(what, figure, bar, held):
    rows.append((what, figure, bar, "held" if held else "MISSED"))
    print(f"  {what}: {figure}", flush=True)


def timed(run, times=EPOCHS):
    """Median seconds of a call, with the GPU's work."""
    run()
    return statistics.median(once(run) for _ in range(times))


def once(run):
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - t0


def in_turns(runs, times=EPOCHS):
    """The same for several calls that alternate."""
    for run in runs:
        run()
    seconds = [[once(run) for run in runs] for _ in range(times)]
    return [statistics.median(column) for column in zip(*seconds)]


def drain(loader):
    return timed(lambda: [None for _ in loader])


class Link:
    """Copies of 256 MiB from page-locked memory."""

    COPIES, BYTES = 8, 256 << 20

    def __init__(self):
        self.host = torch.empty(self.BYTES, dtype=torch.uint8).pin_memory()
        self.there = torch.empty_like(self.host, device="cuda")

    def copy(self):
        for _ in range(self.COPIES):
            self.there.copy_(self.host, non_blocking=True)

    def rate(self, seconds):
        """Bytes per second."""
        return self.COPIES * self.BYTES / seconds


def table_job(count, batch, rate):
    x = torch.rand(count, WIDE, device="cuda").cpu()
    net = torch.nn.Sequential(
        torch.nn.Linear(WIDE, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()
    ).append(torch.nn.Linear(512, 1))
    net = net.cuda().eval()
    some = x[:batch].cuda()
    whole, rest = divmod(count, batch)

    def model_alone():
        for _ in range(whole):
            net(some)
        net(some[:rest])

    def epoch_of(loader):
        def run():
            for rows_there in loader:
                net(rows_there)

        return run

    loader = leat.DataLoader(x, batch, shuffle=True, device="cuda")
    print(loader.plan())
    link = x.numel() * 4 / rate
    model = timed(model_alone)
    gather = drain(leat.DataLoader(x, batch, shuffle=True))
    delivered = drain(loader)
    leat_s = timed(epoch_of(loader))
    locked = x.pin_memory()

    def slices():
        for at in range(0, count, batch):
            net(locked[at : at + batch].to("cuda", non_blocking=True))

    slices_s = timed(slices)
    its = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch, shuffle=True))
    t0 = time.perf_counter()
    for _ in range(2):
        net(next(its)[0].to("cuda"))
    torch.cuda.synchronize()
    torch_s = (time.perf_counter() - t0) * count / (2 * batch)
    floor = max(link, gather, model)
    print(f"  link {link:.3f} s, gather {gather:.3f} s, model {model:.3f} s, ", end="")
    print(f"delivery without a model {delivered:.3f} s")
    name = f"{count} x {WIDE} float32, batch {batch}, MLP"
    figure = f"{leat_s:.3f} s, {torch_s / leat_s:.0f}x ({torch_s:.1f} s)"
    row(f"{name}: DataLoader(shuffle=True)", figure, "200x", torch_s >= 200 * leat_s)
    figure = f"{leat_s / floor:.2f} of {floor:.3f} s"
    row("  largest of link, gather and model", figure, "1.35", leat_s <= 1.35 * floor)
    figure = f"{slices_s:.3f} s"
    row("  contiguous page-locked slices", figure, "not slower", leat_s <= slices_s)
    there = leat.DataLoader(x, batch, shuffle=True, device="cuda", device_memory=16 << 30)
    figure = f"{timed(epoch_of(there)):.3f} s, {drain(there):.3f} s without a model"
    print(f"  the same gathered on the GPU: {figure}")


def image_job(count, link, folder):
    path = os.path.join(folder, "images.npy")
    shape = (count, 3, 224, 224)
    file = numpy.lib.format.open_memmap(path, "w+", numpy.uint8, shape)
    for at in range(0, count, 2048):
        block = file[at : at + 2048]
        block[:] = (
            torch.randint(0, 256, block.shape, dtype=torch.uint8, device="cuda").cpu().numpy()
        )
    del file, block
    data = leat_data.Npy(path)
    loader = leat.DataLoader(data, 256, shuffle=True, drop_last=True, device="cuda")
    seconds, link_s = in_turns([lambda: [None for _ in loader], link.copy], SHORT_EPOCHS)
    rate = link.rate(link_s)
    got = len(loader) * 256 * 3 * 224 * 224 / seconds
    figure = f"{got / 1e9:.1f} GB/s, {got / rate:.0%} of {rate / 1e9:.1f}"
    row("uint8 256x3x224x224 from a warm .npy, shuffled", figure, "70 %", got >= 0.7 * rate)

    seeded = leat.DataLoader(data, 256, shuffle=True, drop_last=True, device="cuda", seed=1)
    cycles = int(5e-3 * clock_hz())

    def work_on(batches):
        """5 ms of GPU work per batch; the rest of the time is what the loader does not hide."""

        def run():
            for batch in batches:
                torch.cuda._sleep(cycles)
                batch[0, 0, 0, 0].clone()

        return run

    def work_alone():
        for _ in range(len(loader)):
            torch.cuda._sleep(cycles)

    alone, *fed = in_turns([work_alone, work_on(loader), work_on(seeded)])
    drawn, idle = (max(0.0, 1 - alone / busy) for busy in fed)
    row("  the same with 5 ms of work a batch: GPU idle", f"{idle:.2%}", "1 %", idle < 0.01)
    print(f"  without a seed: {drawn:.2%}")
    print(loader.stats(), seeded.stats(), sep="\n")


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Gpt(torch.nn.Module):
    def __init__(self, layers=4, width=256, heads=4):
        super().__init__()
        self.token = torch.nn.Embedding(VOCABULARY, width)
        self.position = torch.nn.Parameter(torch.zeros(LENGTH, width))
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = torch.nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.position))


def token_job(batches, folder):
    path = os.path.join(folder, "tokens.bin")
    count = batches * SEQUENCES * LENGTH + 1  # targets are the tokens, shifted by one
    tokens = torch.randint(0, VOCABULARY, (count,), device="cuda").cpu().numpy()
    tokens.astype(numpy.uint16).tofile(path)
    data = leat_data.Tokens(path, LENGTH + 1, stride=LENGTH)
    loader = leat.DataLoader(data, SEQUENCES, shuffle=True, drop_last=True, device="cuda")
    net = Gpt().cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step(batch):
        with torch.autocast("cuda", torch.bfloat16):
            logits = net(batch[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def train_on(batches_of):
        def run():
            for batch in batches_of():
                step(batch)

        return run

    with torch.enable_grad():
        some = next(iter(loader)).clone()
        cached_s, fed_s = in_turns(
            [train_on(lambda: (some for _ in range(len(loader)))), train_on(lambda: loader)]
        )
    print(loader.plan())
    rate = len(loader) * SEQUENCES * LENGTH / fed_s
    figure = f"{cached_s / fed_s:.2%}, {rate / 1e6:.2f} M tokens/s"
    row(
        f"uint16 tokens, {SEQUENCES} x {LENGTH}, GPT in bf16: cached batch",
        figure,
        "99 %",
        cached_s >= 0.99 * fed_s,
    )
    print(f"  {1e3 * cached_s / len(loader):.1f} ms a step on the cached batch")


def clock_hz():
    """The unit of torch.cuda._sleep()."""
    cycles = 100_000_000
    return cycles / timed(lambda: torch.cuda._sleep(cycles))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--only", nargs="*", choices=JOBS, default=JOBS)
    options = parser.parse_args()
    scale = options.scale
    torch.set_grad_enabled(False)
    link = Link()
    rate = link.rate(timed(link.copy))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, link {rate / 1e9:.1f} GB/s")
    if "table" in options.only:
        table_job(int(7_000_000 * scale), int(1_048_576 * min(scale, 1)), rate)
    with tempfile.TemporaryDirectory() as folder:
        if "images" in options.only:
            image_job(int(16_384 * scale) // 256 * 256, link, folder)
        if "tokens" in options.only:
            token_job(max(4, int(32 * scale)), folder)
    print()
    widest = max(len(what) for what, *_ in rows)
    for what, figure, bar, held in rows:
        print(f"{what:<{widest}}  {figure:<26}  {bar:<10}  {held}")
    held = sum(held == "held" for *_, held in rows)
    print(f"{held} of {len(rows)} bars held.")
    return 0 if held == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
