#!/usr/bin/env python3
"""Batches on the GPU, side by side with torch, in one run; ends with a table.

    PYTHONPATH=build/python python3 bench/gpu_loader.py [--scale 1.0]

Times are medians of five epochs after one that warms up: memory is page-locked once, in the first.
torch's DataLoader is slow enough that two of its batches stand for the epoch, scaled by samples.
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

EPOCHS = 5
WIDE = 100
rows = []


def row(what, figure, bar, held):
    rows.append((what, figure, bar, "held" if held else "MISSED"))
    print(f"  {what}: {figure}", flush=True)


def timed(run, times=EPOCHS):
    """The median of the seconds a call takes, the GPU's work included."""
    run()
    seconds = []
    for _ in range(times):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - t0)
    return statistics.median(seconds)


def drain(loader):
    return timed(lambda: [None for _ in loader])


def link_rate():
    """Bytes a second from page-locked memory, in copies of 256 MiB."""
    host = torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    seconds = timed(lambda: [there.copy_(host, non_blocking=True) for _ in range(8)])
    return 8 * host.numel() / seconds


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


def image_job(count, rate, folder):
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
    seconds = drain(loader)
    got = len(loader) * 256 * 3 * 224 * 224 / seconds
    figure = f"{got / 1e9:.1f} GB/s, {got / rate:.0%} of {rate / 1e9:.1f}"
    row("uint8 256x3x224x224 from a warm .npy, shuffled", figure, "70 %", got >= 0.7 * rate)

    def work():
        """5 ms of the GPU a batch, and what the GPU had to do besides: nothing, if all is hidden."""
        for batch in loader:
            torch.cuda._sleep(cycles)
            batch[0, 0, 0, 0].clone()

    cycles = int(5e-3 * clock_hz())
    alone = timed(lambda: [torch.cuda._sleep(cycles) for _ in range(len(loader))])
    busy = timed(work)
    idle = max(0.0, 1 - alone / busy)
    row("  the same with 5 ms of work a batch: GPU idle", f"{idle:.2%}", "1 %", idle < 0.01)
    print(loader.stats())


def clock_hz():
    """What torch.cuda._sleep() counts in."""
    cycles = 100_000_000
    return cycles / timed(lambda: torch.cuda._sleep(cycles))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    scale = parser.parse_args().scale
    torch.set_grad_enabled(False)
    rate = link_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, link {rate / 1e9:.1f} GB/s")
    table_job(int(7_000_000 * scale), int(1_048_576 * min(scale, 1)), rate)
    with tempfile.TemporaryDirectory() as folder:
        image_job(int(16_384 * scale) // 256 * 256, rate, folder)
    print()
    widest = max(len(what) for what, *_ in rows)
    for what, figure, bar, held in rows:
        print(f"{what:<{widest}}  {figure:<26}  {bar:<10}  {held}")
    return 0 if all(held == "held" for *_, held in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
