"""Batches on the GPU: every byte compared with a reference, under stress.

    PYTHONPATH=build/python python3 tests/gpu/test_device_delivery.py [-k NAME]

Needs a GPU and torch with CUDA; pytest runs it too, and skips it where there is none. Values are made
so that a row gives its index, and a batch that is overwritten while it is in use cannot be right.
"""

import gc
import os
import sys
import tempfile
import threading
import traceback

import leat
import numpy
import torch
from leat import data as leat_data

try:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
except ImportError:
    pytest = None

WIDE = 257  # of a row: no power of two, no multiple of 16 bytes


def rows(count, dtype=torch.int32):
    """Row i holds i * 31 + column, as far as the type goes."""
    table = torch.arange(count)[:, None] * 31 + torch.arange(WIDE)[None]
    return (table % 251).to(dtype) if dtype in (torch.uint8, torch.bool) else table.to(dtype)


def order_of(loader, epoch=0):
    """The indices of each batch of an epoch, found by a loader of the CPU with its seed."""
    twin = leat.DataLoader(
        torch.arange(len(loader.dataset)),
        loader.batch_size,
        shuffle=True,
        seed=loader.seed,
        drop_last=loader.drop_last,
    )
    twin.set_epoch(epoch)
    return [indices.clone() for indices in twin]


def busy(cycles=2_000_000):
    torch.cuda._sleep(cycles)  # about a millisecond


def test_all_types_and_a_partial_last_batch():
    names = "bool int8 int16 int32 int64 uint8 float16 bfloat16 float32 float64 complex64".split()
    for name in names:
        x = rows(1003, getattr(torch, name))
        loader = leat.DataLoader(x, 64, shuffle=True, seed=5, device="cuda")
        assert "page-locked" in str(loader.plan())
        batches = list(loader)
        assert [len(batch) for batch in batches] == [64] * 15 + [43]
        for batch, indices in zip(batches, order_of(loader)):
            assert batch.device == torch.device("cuda:0") and batch.dtype == x.dtype
            assert torch.equal(batch.cpu(), x[indices]), name


def test_structures_and_orders():
    x, y = rows(500), torch.arange(500)
    fields = leat_data.Tensors(x=x, y=y)
    for batch in leat.DataLoader(fields, 32, shuffle=True, device="cuda"):
        assert set(batch) == {"x", "y"} and batch["x"].is_cuda and batch["y"].is_cuda
        assert torch.equal(batch["x"].cpu(), x[batch["y"].cpu()])
    pairs = torch.utils.data.TensorDataset(x, y)
    for options in ({"shuffle": True, "order": "torch"}, {}, {"batch_sampler": [[3, 1], [7]]}):
        options = {"batch_size": 32, **options} if "batch_sampler" not in options else options
        for left, right in leat.DataLoader(pairs, device=torch.device("cuda", 0), **options):
            assert torch.equal(left.cpu(), x[right.cpu()])
    subset = torch.utils.data.Subset(pairs, range(100, 200))
    seen = torch.cat(
        [right for _, right in leat.DataLoader(subset, 7, shuffle=True, device="cuda")]
    )
    assert sorted(seen.tolist()) == list(range(100, 200))


def test_epochs_that_follow_each_other():
    """The next one is begun while the last batches of this one are in use, on whatever stream."""
    x = rows(2_000)
    on_gpu, side = x.cuda(), torch.cuda.Stream()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npy")
        numpy.save(path, x.numpy())
        loader = leat.DataLoader(leat_data.Npy(path), 128, shuffle=True, seed=3, device="cuda")
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for epoch in (0, 1, 2, 3, 4, 9, 10, 11, 5):  # twice another than is expected
            loader.set_epoch(epoch)
            for batch, indices in zip(loader, order_of(loader, epoch)):
                rows_there = indices.cuda()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    busy(500_000)
                    wrong += (batch != on_gpu[rows_there]).sum()
                rows_there.record_stream(side)
                del batch
            assert loader.state_dict()["epoch"] == epoch + 1
        torch.cuda.synchronize()
        assert int(wrong) == 0


def test_ten_thousand_batches_under_stress():
    """Kept tensors, many streams without record_stream(), views, early deletion, random waits."""
    stress(None)


def test_the_same_gathered_there():
    stress(8 << 30)


def stress(memory):
    x = rows(640_000)
    on_gpu = x.cuda()
    streams = [torch.cuda.Stream() for _ in range(8)]
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    kept, seen = [], 0
    random = torch.Generator().manual_seed(1)
    for epoch in range(2):
        loader = leat.DataLoader(
            x, 128, shuffle=True, seed=epoch, device="cuda", device_memory=memory
        )
        for indices, batch in zip(order_of(loader), loader):
            dice = int(torch.randint(0, 100, (1,), generator=random))
            rows_there = indices.cuda()
            if dice < 40:  # used late, on a stream that the loader never hears of; dropped at once
                stream = streams[dice % len(streams)]
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    busy(200_000 if dice % 5 else 3_000_000)
                    differs = (batch != on_gpu[rows_there]).sum()
                rows_there.record_stream(stream)
                del batch
                torch.cuda.current_stream().wait_stream(stream) if dice < 4 else None
                with torch.cuda.stream(stream):
                    differs_there = differs
                kept.append((stream, differs_there))
            elif dice < 50:  # kept, beyond its loop
                kept.append((None, batch, rows_there))
            elif dice < 60:  # dropped unread
                del batch
            elif dice < 70:  # a view outlives it
                view = batch[7:9, 3:]
                busy(100_000)
                del batch
                wrong += (view != on_gpu[rows_there[7:9], 3:]).sum()
            else:
                busy(50_000)
                wrong += (batch != on_gpu[rows_there]).sum()
            seen += 1
            if len(kept) > 300:
                wrong += check_kept(kept, on_gpu)
    wrong += check_kept(kept, on_gpu)
    assert seen == 10_000 and int(wrong) == 0, (seen, int(wrong))


def check_kept(kept, on_gpu):
    torch.cuda.synchronize()
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for stream, what, *rest in kept:
        wrong += what if stream is not None else (what != on_gpu[rest[0]]).sum()
    kept.clear()
    return wrong


def test_the_cpu_runs_ahead():
    """Large copies, and nothing that makes the CPU wait: batches are used the moment they are taken,
    and dropped long before the GPU comes to them."""
    for size in (50_000, 12_500):
        run_ahead(size)


def run_ahead(size):
    x = rows(400_000)
    on_gpu = x.cuda()
    loader = leat.DataLoader(x, size, shuffle=True, seed=3, device="cuda")
    for epoch in range(6):  # from the second on all slots are there: nothing else takes time
        order = [indices.cuda() for indices in order_of(loader, epoch)]
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        for indices, batch in zip(order, loader):
            wrong += (batch != on_gpu[indices]).sum()
            busy(5_000_000)
            del batch
        assert int(wrong) == 0, (epoch, int(wrong))


def test_batches_that_are_all_kept():
    x = rows(20_000)
    loader = leat.DataLoader(
        x, 100, shuffle=True, seed=2, device="cuda", device_memory=8 * 100 * WIDE * 4
    )
    batches = list(loader)  # 200 of them, where eight fit
    busy()
    for batch, indices in zip(batches, order_of(loader)):
        assert torch.equal(batch.cpu(), x[indices])
    del batches, batch
    assert sum(1 for _ in loader) == 200
    assert loader.stats().slots <= 8


def test_data_that_lives_there():
    fields = {"wide": torch.rand(5003, 100), "odd": rows(5003, torch.uint8)}
    fields.update(
        one=torch.arange(5003), half=torch.rand(5003, 7).half(), none=torch.rand(5003, 2, 2)
    )
    data = leat_data.Tensors(**fields)
    loader = leat.DataLoader(data, 256, shuffle=True, seed=6, device="cuda", device_memory=1 << 30)
    assert "gathered there" in str(loader.plan())
    for _ in range(2):
        seen = 0
        for batch in loader:
            indices = batch["one"].cpu()
            seen += len(indices)
            for name, whole in fields.items():
                assert torch.equal(batch[name].cpu(), whole[indices]), name
        assert seen == 5003
        assert loader._leat_shared.idle_engine.core.stats()["resident"]
        fields["wide"].mul_(2)  # seen by the next pass
    strided = torch.rand(100, 1000).t()  # cannot be taken over
    loader = leat.DataLoader(
        strided, 100, shuffle=True, seed=1, device="cuda", device_memory=1 << 30
    )
    for batch, indices in zip(loader, order_of(loader)):
        assert torch.equal(batch.cpu(), strided[indices])
    assert not loader._leat_shared.idle_engine.core.stats()["resident"]


def test_consumer_on_another_stream():
    x = rows(50_000)
    on_gpu = x.cuda()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    wrong = 0
    with torch.cuda.stream(stream):
        for _ in range(3):
            loader = leat.DataLoader(x, 512, shuffle=True, seed=7, device="cuda")
            for indices, batch in zip(order_of(loader), loader):
                busy(1_000_000)
                wrong = wrong + (batch != on_gpu[indices.cuda()]).sum()
                del batch
        assert int(wrong) == 0  # still on that stream: no other one waits for the sum


def test_compiled_consumer():
    x = rows(4096, torch.float32)
    net = torch.nn.Linear(WIDE, 8).cuda()
    for mode in (None, "reduce-overhead"):
        compiled = torch.compile(net, mode=mode)
        loader = leat.DataLoader(x, 256, shuffle=True, seed=3, device="cuda")
        for _ in range(4):
            for indices, batch in zip(order_of(loader), loader):
                with torch.no_grad():
                    got, want = compiled(batch), net(x[indices].cuda())
                    assert torch.allclose(got, want, rtol=1e-3, atol=1e-2), mode
            loader.set_epoch(0)


def test_cuda_graph_consumer():
    """Captured with a batch dropped and one taken meanwhile, then replayed over an epoch."""
    x = rows(8192, torch.float32)
    loader = leat.DataLoader(x, 128, shuffle=True, seed=4, device="cuda", num_threads=2)
    iterator = iter(loader)
    held = [next(iterator), next(iterator)]
    static = held[0].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        static.sum(1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = static.sum(1)
        held.pop()  # its release is owed until the capture is over
        taken = next(iterator)
    order = order_of(loader)
    assert torch.equal(taken.cpu(), x[order[2]])
    held.clear()
    del taken
    for batch, indices in zip(iterator, order[3:]):
        static.copy_(batch)
        graph.replay()
        assert torch.equal(batch.cpu(), x[indices])
        assert torch.allclose(out.cpu(), x[indices].sum(1), rtol=1e-5)


def test_two_loaders_at_once_and_threads():
    x, y = rows(30_000), rows(30_000) + 5
    left = leat.DataLoader(x, 256, shuffle=True, seed=1, device="cuda")
    right = leat.DataLoader(y, 256, shuffle=True, seed=1, device="cuda")
    for a, b in zip(left, right):
        assert torch.equal(a + 5, b)
    failed = []

    def consume(seed):
        try:
            loader = leat.DataLoader(x, 512, shuffle=True, seed=seed, device="cuda")
            with torch.cuda.stream(torch.cuda.Stream()):
                for indices, batch in zip(order_of(loader), loader):
                    assert torch.equal(batch.cpu(), x[indices])
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=consume, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def test_breaking_out_and_tensors_that_outlive_the_loader():
    x = rows(10_000)
    for _ in range(20):
        loader = leat.DataLoader(x, 256, shuffle=True, seed=9, device="cuda")
        batch = next(iter(loader))
        order = order_of(loader)
        del loader
        gc.collect()
        assert torch.equal(batch.cpu(), x[order[0]])


def test_state_goes_on():
    x = torch.arange(10_000)
    whole = leat.DataLoader(x, 64, shuffle=True, seed=11, device="cuda")
    iterator = iter(whole)
    had = [next(iterator).cpu() for _ in range(40)]
    state = whole.state_dict()
    again = leat.DataLoader(x, 64, shuffle=True, device="cuda")
    again.load_state_dict(state)
    seen = torch.cat(had + [batch.cpu() for batch in again])
    assert sorted(seen.tolist()) == list(range(10_000))


def test_bad_samples_are_replaced_before_the_copy():
    with tempfile.TemporaryDirectory() as folder:
        for i in range(200):
            with open(os.path.join(folder, f"{i:03}.npy"), "wb") as file:
                if i % 17 == 3:
                    file.write(b"broken")
                else:
                    numpy.save(file, numpy.full((50,), i, numpy.int32))
        paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        files = leat_data.Files(paths, value="npy", labels=list(range(200)))
        loader = leat.DataLoader(files, 16, shuffle=True, on_error="skip", device="cuda")
        seen = []
        for batch in loader:
            value, label = batch
            assert value.is_cuda and bool((value == label[:, None]).all())
            seen += label.tolist()
        assert sorted(seen) == [i for i in range(200) if i % 17 != 3]


def test_through_torch():
    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return {"x": torch.full((1000,), i), "name": str(i)}

    for workers in (0, 2):
        loader = leat.DataLoader(Squares(), 10, device="cuda", num_workers=workers)
        assert not loader.plan().runs_in_c and "separate stream" in str(loader.plan())
        for number, batch in enumerate(loader):
            busy(500_000)
            assert batch["x"].is_cuda and batch["name"][0] == str(number * 10)
            assert batch["x"][:, 5].tolist() == list(range(number * 10, number * 10 + 10))


def test_fork_leaves_cuda_alone():
    x = rows(1000)
    loader = leat.DataLoader(x, 100, seed=1, shuffle=True, device="cuda")
    iterator = iter(loader)
    held = next(iterator)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            next(iterator)
        except ValueError as error:
            status = 0 if "fork" in str(error) else 2
        del held, iterator, loader
        gc.collect()
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    for batch, indices in zip(iterator, order_of(loader)[1:]):
        assert torch.equal(batch.cpu(), x[indices])


def test_errors_are_sentences():
    x = rows(1000)
    for options, word in (
        ({"device": "cuda:77"}, "cuda:77"),
        ({"device": "cuda", "device_memory": 1000}, "device_memory"),
    ):
        try:
            next(iter(leat.DataLoader(x, 100, **options)))
        except (OSError, RuntimeError, ValueError) as error:
            assert word in str(error), error
        else:
            raise AssertionError(options)


def main():
    chosen = sys.argv[2] if sys.argv[1:2] == ["-k"] else ""
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_") and chosen in name:
            try:
                test()
                print(f"ok      {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
