"""leat.DataLoader: no leaked thread, descriptor or memory, no hang; kept batches do not change."""

import copy
import gc
import os
import signal
import sys
import threading
import time

import numpy
import pytest
import torch
from loader_kit import (
    files_now,
    leat,
    leat_data,
    numbers,
    over,
    resident_bytes,
    run_script,
    thread_ids,
    threads_now,
    threads_settle,
)

# ---- Leaks and hangs.


def test_breaking_out_and_deleting():
    x = torch.arange(100000)
    numbers(leat.DataLoader(x, 1000))
    gc.collect()
    threads, files = threads_now(), files_now()
    for _ in range(20):
        loader = leat.DataLoader(x, 100, True, num_threads=3)
        for batch in loader:
            if len(batch):
                break
        iterator = iter(loader)
        next(iterator)
        del loader
        assert len(next(iterator)) == 100  # an iterator outlives its loader
        del iterator
    assert len(batch) == 100
    assert threads_settle(threads) and files_now() == files


def test_an_exception_in_the_loop():
    threads = threads_now()
    with pytest.raises(ZeroDivisionError):
        for batch in over(1000, 10, num_threads=2):
            batch // 0 if 0 else 1 // 0
    gc.collect()
    assert threads_settle(threads)


@pytest.mark.alone
def test_a_thousand_loaders_leak_nothing():
    x = torch.arange(1000.0).reshape(100, 10)
    list(leat.DataLoader(x, 10))
    gc.collect()
    threads, files, before = threads_now(), files_now(), resident_bytes()
    for _ in range(1000):
        next(iter(leat.DataLoader(x, 10, True)))
    assert threads_settle(threads) and files_now() == files
    # A leak of one slot (a page) or one stack per loader would be 4 MB or more.
    assert resident_bytes() - before < 3 << 20


def test_all_epochs_use_the_same_threads():
    loader = over(1000, 10, True, num_threads=2)
    list(loader)
    threads = thread_ids()
    for _ in range(10):
        list(loader)
    assert thread_ids() == threads and loader.stats().batches == 1100


@pytest.mark.alone
@pytest.mark.parametrize("options", [{"shuffle": True, "seed": 1}, {}])
def test_the_next_epoch_is_made_ahead(tmp_path, options):
    """Once two have followed each other, where its order is known beforehand. Otherwise its first
    batch is waited for in every epoch; a machine that stood still may make it so in one."""
    numpy.save(tmp_path / "x.npy", numpy.arange(32 << 18).reshape(32, -1))
    loader = leat.DataLoader(leat_data.Npy(tmp_path / "x.npy"), 8, num_threads=1, **options)
    waits = []
    for epoch in range(6):
        before = loader.stats().waits
        iterator = iter(loader)
        rows = [next(iterator).clone()]
        waits.append(loader.stats().waits - before)
        rows += [batch.clone() for batch in iterator]
        firsts = sorted(int(row[0]) >> 18 for row in torch.cat(rows))
        assert firsts == list(range(32)) and loader.state_dict()["epoch"] == epoch + 1
        time.sleep(0.5)
    assert 0 in waits[2:]


def test_fork_after_start():
    loader = over(1000, 10, seed=1)
    iterator = iter(loader)
    head = [next(iterator).tolist() for _ in range(3)]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            rest = [batch.tolist() for batch in iterator]
            again = numbers(loader)
            good = head + rest == [list(range(i, i + 10)) for i in range(0, 1000, 10)]
            os.write(write, b"y" if good and again == list(range(1000)) else b"n")
            del iterator, loader
        finally:
            os._exit(0)
    os.close(write)
    rest = [batch.tolist() for batch in iterator]
    assert head + rest == [list(range(i, i + 10)) for i in range(0, 1000, 10)]
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.read(read, 1) == b"y"


def test_ctrl_c():
    run = run_script("""
        import torch, leat
        loader = leat.DataLoader(torch.zeros(200_000, 100), 50_000, True)
        try:
            print("on", flush=True)
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt:
            print("out", flush=True)
    """)
    assert run.stdout.readline() == "on\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    try:
        out, err = run.communicate(timeout=300)
    finally:
        run.kill()
    assert out == "out\n" and run.returncode == 0, err


def test_exit_in_the_middle_of_an_epoch():
    run = run_script("""
        import torch, leat
        loader = leat.DataLoader(torch.zeros(200_000, 100), 5000, True, num_threads=4)
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(3)]
        print(len(kept))
    """)
    out, err = run.communicate(timeout=300)
    assert (out, err, run.returncode) == ("3\n", "", 0)


def test_stats_and_state_dict_while_other_threads_iterate():
    loader = over(50000, 10, True, seed=1)
    seen, errors = [], []

    def walk():
        try:
            seen.append(sorted(numbers(loader)))
        except Exception as error:
            errors.append(error)

    walkers = [threading.Thread(target=walk) for _ in range(2)]
    for walker in walkers:
        walker.start()
    while any(walker.is_alive() for walker in walkers):
        loader.stats()
        loader.state_dict()
    for walker in walkers:
        walker.join()
    assert not errors and seen == [list(range(50000))] * 2


def test_stats_while_engines_are_made_and_closed():
    """Two iterators at once: one engine is made and closed per pass."""
    loader = over(40, 10)
    errors, done = [], threading.Event()

    def ask():
        try:
            while not done.is_set():
                loader.stats()
        except Exception as error:
            errors.append(error)

    asking = threading.Thread(target=ask)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asking.start()
        for _ in range(200):
            assert list(zip(iter(loader), iter(loader)))
    finally:
        sys.setswitchinterval(interval)
        done.set()
        asking.join()
    assert not errors and loader.stats().batches == 200 * 2 * 4


# ---- Memory.


def test_kept_batches_never_change():
    x = torch.randn(4000, 10)
    loader = leat.DataLoader(leat_data.Tensors(x, torch.arange(4000)), 50, True, seed=1)
    kept = [batch for _ in range(3) for batch in loader]
    copies = copy.deepcopy(kept)
    for _ in range(3):
        for rows, _ in loader:
            rows.zero_()
    del loader
    gc.collect()
    for (rows, index), (rows_then, index_then) in zip(kept, copies):
        assert torch.equal(rows, rows_then) and torch.equal(index, index_then)
        assert torch.equal(rows, x[index])


def test_a_view_keeps_its_batch():
    loader = over(1000, 10)
    views = [batch[3:5] for batch in loader]
    list(loader)
    assert [view.tolist() for view in views] == [[i + 3, i + 4] for i in range(0, 1000, 10)]


def test_dlpack_shares_the_memory_of_the_slot():
    """As JAX and CuPy take it. The slot is held until the last array is dropped."""
    loader = over(1000, 10, num_threads=1, autotune=False)
    iterator = iter(loader)
    batch = next(iterator)
    array = numpy.from_dlpack(batch)
    assert array.ctypes.data == batch.data_ptr() and batch.data_ptr() % 64 == 0
    batch[0] = 100  # it may be written
    del batch
    gc.collect()
    assert loader.stats().slots_held == 1
    list(iterator)
    assert array.tolist() == [100, *range(1, 10)] and loader.stats().slots_held == 1
    del array
    gc.collect()
    assert loader.stats().slots_held == 0


def test_memory_stays_in_the_budget_when_all_batches_are_kept():
    row = 1000 * 8
    budget = 6 * 100 * row
    x = torch.zeros(10000, 1000, dtype=torch.float64)
    loader = leat.DataLoader(x, 100, memory_budget=budget)
    kept = []
    for batch in loader:
        kept.append(batch)
        assert loader.stats().memory_bytes <= budget
    assert len(kept) == 100 and loader.stats().full == 0
    with pytest.raises(RuntimeError, match="the memory budget is 0.8 MiB"):
        list(leat.DataLoader(x, 100, memory_budget=100 * row))


@pytest.mark.alone
def test_memory_does_not_grow_over_epochs():
    x = torch.zeros(100000, 50)
    # autotune may make more batches ahead.
    loader = leat.DataLoader(x, 5000, True, seed=1, autotune=False)
    for _ in loader:
        pass
    before = resident_bytes()
    for _ in range(10):
        for _ in loader:
            pass
    # 1 %, and a megabyte for the test itself.
    assert resident_bytes() - before < before * 0.01 + (1 << 20)
