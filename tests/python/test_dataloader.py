"""The promises of leat.DataLoader where torch has none to compare with: order, ranks, state, bad
samples, memory, and leaving nothing behind."""

import collections
import copy
import gc
import inspect
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
import torch
from conftest import PACKAGE, environment
from receiver import samples
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

sys.path.insert(0, os.path.dirname(PACKAGE))
import leat  # noqa: E402
from leat import data as leat_data  # noqa: E402

ORDERS = ("full", "quasi", "window", "sequential")


class Rows(Dataset):
    """A dataset that only Python can read."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.tensor(index)


class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.tensor(i) for i in range(23))


def numbers(loader):
    """The samples of one epoch, which are numbers, in their order."""
    return [i for batch in loader for i in batch.tolist()]


def over(count, *args, **kwargs):
    return leat.DataLoader(torch.arange(count), *args, **kwargs)


def threads_now():
    return len(os.listdir("/proc/self/task"))


def files_now():
    return len(os.listdir("/proc/self/fd"))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- One epoch is the data.


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", (1, 7, 64, 1009))
def test_an_epoch_is_the_data(order, count):
    loader = over(count, 8, order=order, seed=5)
    for _ in range(3):
        assert sorted(numbers(loader)) == list(range(count))
    assert len(loader) == len(list(loader)) == -(-count // 8)
    dropping = over(count, 8, order=order, seed=5, drop_last=True)
    seen = numbers(dropping)
    assert len(set(seen)) == len(seen) == count // 8 * 8
    assert len(dropping) == len(list(dropping)) == count // 8


def test_orders_are_what_they_are_called():
    assert numbers(over(100, 8)) == list(range(100))
    assert numbers(over(100, 8, order="sequential")) == list(range(100))
    full = over(1000, 8, shuffle=True, seed=1)
    first, second = numbers(full), numbers(full)
    assert first != second and first != list(range(1000))
    window = numbers(over(10000, 8, order="window", seed=1))
    # Windows have 4096 samples by default: nothing moves further than that.
    assert max(abs(place - i) for place, i in enumerate(window)) < 4096
    assert window != list(range(10000))


def test_seeds_and_epochs():
    assert numbers(over(99, 4, True, seed=3)) == numbers(over(99, 4, True, seed=3))
    assert numbers(over(99, 4, True, seed=3)) != numbers(over(99, 4, True, seed=4))
    one, other = over(99, 4, True, seed=3), over(99, 4, True, seed=3)
    numbers(one)
    other.set_epoch(1)
    assert numbers(one) == numbers(other)
    assert numbers(one) == numbers(other)  # and so on with the epochs after it


def test_without_a_seed_torch_decides():
    def two():
        torch.manual_seed(11)
        first, second = over(99, 4, True), over(99, 4, True)
        return numbers(first), numbers(second), numbers(first)

    once, again = two(), two()
    assert once == again
    # Two loaders side by side do not give the same order, nor do two epochs.
    assert once[0] != once[1] and once[0] != once[2]


def test_order_torch_is_torchs():
    torch.manual_seed(2)
    expected = numbers(torch.utils.data.DataLoader(torch.arange(99), 4, True))
    torch.manual_seed(2)
    loader = over(99, 4, order="torch")
    assert loader.plan().lowered
    assert numbers(loader) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_threads_do_not_matter(order):
    x = torch.arange(5003)
    seen = [
        [batch.tolist() for batch in leat.DataLoader(x, 64, order=order, seed=9, threads=threads)]
        for threads in (1, 2, 4, None)
    ]
    assert seen[0] == seen[1] == seen[2] == seen[3]


# ---- Ranks.


@pytest.mark.parametrize("dataset", (torch.arange(103), Rows(103), Subset(Rows(200), range(103))))
@pytest.mark.parametrize("world", (1, 2, 3, 7))
@pytest.mark.parametrize("shuffle", (False, True))
def test_ranks_share_the_data(dataset, world, shuffle):
    for drop_last in (False, True):
        parts = []
        for rank in range(world):
            loader = leat.DataLoader(
                dataset, 8, shuffle, drop_last=drop_last, rank=rank, world_size=world
            )
            batches = list(loader)
            assert len(loader) == len(batches)
            parts.append([i for batch in batches for i in batch.tolist()])
        together = [i for part in parts for i in part]
        assert len(set(together)) == len(together)
        if drop_last:
            assert len(together) == 103 // (8 * world) * 8 * world
        else:
            assert sorted(together) == list(range(103))


def test_ranks_of_torch_distributed(tmp_path):
    script = """
        import json, os, sys
        import torch, leat
        rank = int(sys.argv[1])
        store = torch.distributed.FileStore(sys.argv[2], 2)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
        torch.manual_seed(rank)
        loader = leat.DataLoader(torch.arange(101), 8, True)
        first = [i for batch in loader for i in batch.tolist()]
        own = leat.DataLoader(torch.arange(101), 8, rank=0, world_size=1)
        given = torch.utils.data.DistributedSampler(range(101))
        theirs = leat.DataLoader(torch.arange(101), 8, sampler=given)
        print(json.dumps([first, len(loader), len(own), len(theirs), len(list(theirs))]))
        torch.distributed.destroy_process_group()
    """
    path = tmp_path / "ranks.py"
    path.write_text(textwrap.dedent(script))
    env = environment(inject=False, PYTHONPATH=os.path.dirname(PACKAGE))
    runs = [
        subprocess.Popen(
            [sys.executable, str(path), str(rank), str(tmp_path / "store")],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [json.loads(run.communicate(timeout=120)[0]) for run in runs]
    assert sorted(told[0][0] + told[1][0]) == list(range(101))
    for _, length, own, theirs, walked in told:
        assert length == 7 and own == 13 and theirs == walked == 7


# ---- State.


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("saved_world", (1, 2))
def test_state_at_every_batch(order, saved_world):
    """Saved after any batch, loaded with other threads, ranks and batch sizes: what is left comes
    exactly once."""
    count = 61

    def make(rank, world, size, threads):
        return over(count, size, order=order, seed=4, threads=threads, rank=rank, world_size=world)

    steps = len(make(0, saved_world, 4, 1))
    for stop in range(steps + 1):
        had, states = [], []
        for rank in range(saved_world):
            loader = make(rank, saved_world, 4, 1)
            loader.set_epoch(2)
            iterator = iter(loader)
            for _ in range(stop):
                batch = next(iterator, None)
                had += [] if batch is None else batch.tolist()
            states.append(json.loads(json.dumps(loader.state_dict())))
        for world, threads, size in ((1, 2, 4), (2, 1, 4), (3, 4, 5)):
            rest = []
            for rank in range(world):
                loader = make(rank, world, size, threads)
                loader.load_state_dict(states[0])
                rest += numbers(loader)
            assert sorted(had + rest) == list(range(count)), (stop, world)


def test_a_state_goes_on_in_the_same_order():
    whole = over(61, 4, True, seed=4)
    numbers(whole)
    expected = numbers(whole)
    half = over(61, 4, True, seed=4)
    numbers(half)
    iterator = iter(half)
    head = [i for _ in range(5) for i in next(iterator).tolist()]
    state = half.state_dict()
    resumed = over(61, 4, True, seed=77)  # the state brings its own seed
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert head + numbers(resumed) == expected
    assert resumed.state_dict()["epoch"] == 2


def test_a_state_is_small_and_of_one_size(tmp_path):
    loader = over(100000, 8, True, seed=1)
    sizes = set()
    for number, _ in enumerate(loader):
        if number % 1000 == 3:
            path = tmp_path / "state"
            torch.save(loader.state_dict(), path)
            assert torch.load(path, weights_only=True) == loader.state_dict()
            sizes.add(len(str(list(loader.state_dict()))))
            assert len(json.dumps(loader.state_dict())) < 300
    assert len(sizes) == 1


def test_the_state_of_a_broken_off_pass():
    """A pass that was left is where it was left, also when its engine has served another."""
    loader = over(61, 4, True, seed=4)
    first = iter(loader)
    head = [i for _ in range(3) for i in next(first).tolist()]
    state = loader.state_dict()
    del first
    assert loader.state_dict() == state
    resumed = over(61, 4, True, seed=4)
    resumed.load_state_dict(state)
    assert sorted(head + numbers(resumed)) == list(range(61))


@pytest.mark.parametrize(
    "make",
    (
        lambda: leat.DataLoader(Rows(23), 4, True),
        lambda: leat.DataLoader(Rows(23), 4, True, generator=torch.Generator().manual_seed(5)),
        lambda: leat.DataLoader(Rows(23), 4, True, seed=8),
        lambda: leat.DataLoader(Rows(23), 4, True, num_workers=2, persistent_workers=True),
        lambda: leat.DataLoader(Rows(23), 4, sampler=list(range(22, -1, -1))),
        lambda: leat.DataLoader(Stream(), 4),
        lambda: over(23, 4, True, generator=torch.Generator().manual_seed(5)),
        lambda: over(23, 4, order="torch"),
        lambda: leat.DataLoader(Subset(torch.arange(40), range(10, 33)), 4, True),
    ),
)
def test_state_in_torchs_order(make):
    """Where the order is torch's the state is a number of batches and what the order hangs on."""
    for stop in (0, 1, 3, 6):
        torch.manual_seed(1)
        loader = make()
        iterator = iter(loader)
        head = [i for _ in range(stop) for i in next(iterator).tolist()]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        rest = [i for batch in iterator for i in batch.tolist()]
        torch.manual_seed(99)
        resumed = make()
        resumed.load_state_dict(state)
        if stop:
            assert numbers(resumed) == rest
        else:
            assert len(numbers(resumed)) == 23
        assert len(set(head + rest)) == 23 and resumed.state_dict()["epoch"] == 1
        assert len(numbers(resumed)) == 23  # the next epoch is whole


def test_states_that_do_not_fit():
    loader = over(61, 4, True, seed=4)
    next(iter(loader))
    state = loader.state_dict()
    for other in (over(62, 4, True), leat.DataLoader(Rows(61), 4), over(61, 4, order="torch")):
        other.load_state_dict(state)
        with pytest.raises(ValueError, match="state"):
            list(other)
    for wrong in ({}, {"leat": 99}, None, 5):
        with pytest.raises(ValueError, match="state"):
            loader.load_state_dict(wrong)
    torchs = leat.DataLoader(Rows(61), 4)
    next(iter(torchs))
    shared = leat.DataLoader(Rows(61), 4, rank=0, world_size=2)
    with pytest.raises(ValueError, match="ranks"):
        shared.load_state_dict(torchs.state_dict())


# ---- Nothing is left behind, nothing hangs.


def test_breaking_out_and_deleting():
    x = torch.arange(100000)
    numbers(leat.DataLoader(x, 1000))
    gc.collect()
    threads, files = threads_now(), files_now()
    for _ in range(20):
        loader = leat.DataLoader(x, 100, True, threads=3)
        for batch in loader:
            if len(batch):
                break
        iterator = iter(loader)
        next(iterator)
        del loader
        assert len(next(iterator)) == 100  # an iterator outlives its loader
        del iterator
    assert len(batch) == 100
    assert threads_now() == threads and files_now() == files


def test_an_exception_in_the_loop():
    threads = threads_now()
    with pytest.raises(ZeroDivisionError):
        for batch in over(1000, 10, threads=2):
            batch // 0 if 0 else 1 // 0
    gc.collect()
    assert threads_now() == threads


def test_a_thousand_loaders():
    x = torch.arange(1000.0).reshape(100, 10)
    list(leat.DataLoader(x, 10))
    gc.collect()
    threads, files, before = threads_now(), files_now(), resident_bytes()
    for _ in range(1000):
        next(iter(leat.DataLoader(x, 10, True)))
    assert threads_now() == threads and files_now() == files
    # A leak of one slot (a page or more) or one thread's stack for each would be 4 MB and more.
    assert resident_bytes() - before < 3 << 20


def test_one_engine_serves_all_epochs():
    loader = over(1000, 10, True, threads=2)
    list(loader)
    before = threads_now()
    for _ in range(10):
        list(loader)
    assert threads_now() == before
    assert loader.stats().batches == 1100


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
    rest = [batch.tolist() for batch in iterator]
    assert head + rest == [list(range(i, i + 10)) for i in range(0, 1000, 10)]
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.read(read, 1) == b"y"


def run_script(script, *args, **options):
    env = environment(inject=False, PYTHONPATH=os.path.dirname(PACKAGE))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_ctrl_c():
    run = run_script("""
        import torch, leat
        loader = leat.DataLoader(torch.zeros(200_000, 100), 50_000, True)
        print("on", flush=True)
        try:
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt:
            print("out", flush=True)
    """)
    assert run.stdout.readline() == "on\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert out == "out\n" and run.returncode == 0, err


def test_an_interpreter_ends_in_the_middle():
    run = run_script("""
        import torch, leat
        loader = leat.DataLoader(torch.zeros(200_000, 100), 5000, True, threads=4)
        iterator = iter(loader)
        kept = [next(iterator) for _ in range(3)]
        print(len(kept))
    """)
    out, err = run.communicate(timeout=60)
    assert (out, err, run.returncode) == ("3\n", "", 0)


def test_several_threads_may_ask():
    """stats() and state_dict() while another thread iterates; two iterators in two threads."""
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


def test_the_budget_holds_whoever_keeps_what():
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


def test_memory_over_epochs():
    x = torch.zeros(100000, 50)
    loader = leat.DataLoader(x, 5000, True, seed=1)
    for _ in loader:
        pass
    before = resident_bytes()
    for _ in range(10):
        for _ in loader:
            pass
    # One per cent, and a megabyte for what the test itself does.
    assert resident_bytes() - before < before * 0.01 + (1 << 20)


# ---- Bad samples.


@pytest.fixture
def cut_short(tmp_path):
    """A .npy of 100 rows of which the last ten are not there any more."""
    path = tmp_path / "rows.npy"
    rows = numpy.arange(100 * 4096, dtype=numpy.float32).reshape(100, 4096)
    numpy.save(path, rows)
    dataset = leat_data.Npy(path)

    def cut():
        os.truncate(path, os.path.getsize(path) - 10 * 4096 * 4)

    return dataset, rows, cut


def first_column(batches):
    return [int(i) // 4096 for batch in batches for i in batch[:, 0].tolist()]


def test_a_bad_sample_is_an_error(cut_short):
    dataset, _, cut = cut_short
    loader = leat.DataLoader(dataset, 20)
    assert first_column(loader) == list(range(100))  # the file is open now
    cut()
    iterator = iter(loader)
    good, said = [], []
    for _ in range(5):
        try:
            good.append(next(iterator))
        except (OSError, ValueError) as error:
            said.append(str(error))
    assert len(said) == 1 and "rows.npy" in said[0]
    assert first_column(good) == list(range(80))
    assert next(iterator, None) is None


@pytest.mark.parametrize("policy", ("skip", "replace"))
def test_a_bad_sample_is_left_out_or_replaced(cut_short, policy):
    dataset, rows, cut = cut_short
    loader = leat.DataLoader(dataset, 20, True, seed=2, on_error=policy)
    assert sorted(first_column(loader)) == list(range(100))  # the file is open now
    cut()
    batches = list(loader)
    seen = first_column(batches)
    for batch, index in zip(torch.cat(batches), seen):
        assert torch.equal(batch, torch.from_numpy(rows[index]))
    assert set(seen) == set(range(90))
    assert all(len(batch) == 20 for batch in batches[:-1])
    if policy == "skip":
        assert len(seen) == 90
    else:
        assert len(seen) == 100
    stats = loader.stats()
    assert stats.bad_samples == len(stats.errors) == 10
    assert sorted(index for _, index, _ in stats.errors) == list(range(90, 100))
    assert all("rows.npy" in text for _, _, text in stats.errors)


def test_a_policy_without_effect_is_refused():
    loader = leat.DataLoader(Rows(5), on_error="skip")
    with pytest.raises(ValueError, match="on_error='skip' needs .* code of its own"):
        next(iter(loader))
    with pytest.raises(ValueError, match="order='quasi' needs"):
        next(iter(leat.DataLoader(Rows(5), order="quasi")))
    with pytest.raises(ValueError, match="seed=1 needs"):
        next(iter(leat.DataLoader(Stream(), seed=1)))


# ---- leat.data.

Point = collections.namedtuple("Point", "x y")


def megatron_index(path, dtype, lengths):
    """As Megatron-LM's IndexedDatasetBuilder writes it."""
    codes = {numpy.uint16: 8, numpy.int32: 4}
    starts = numpy.cumsum([0, *lengths[:-1]]) * numpy.dtype(dtype).itemsize
    with open(path, "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, codes[dtype], len(lengths), 2))
        file.write(numpy.array(lengths, "<i4").tobytes() + numpy.array(starts, "<i8").tobytes())
        file.write(numpy.array([0, len(lengths)], "<i8").tobytes())


def tensors_of(tmp_path):
    x = torch.arange(46.0).reshape(23, 2)
    y = numpy.arange(23, dtype=numpy.int16)
    numpy.save(tmp_path / "x.npy", x.numpy())
    numpy.save(tmp_path / "y.npy", y)
    numpy.save(tmp_path / "swapped.npy", y.astype(">i4"))
    numpy.save(tmp_path / "fortran.npy", numpy.asfortranarray(numpy.arange(138).reshape(23, 2, 3)))
    numpy.save(tmp_path / "bools.npy", y % 2 == 0)
    numpy.arange(1000, dtype=numpy.uint16).tofile(tmp_path / "t16.bin")
    numpy.arange(1000, dtype=numpy.int32).tofile(tmp_path / "t32.bin")
    numpy.savez(tmp_path / "both.npz", x=x.numpy(), y=y, z=numpy.asfortranarray(x.numpy()))
    kinds = [("id", "i8"), ("ok", "?"), ("box", "f4", (2, 2)), ("rgb", "u1", 3)]
    structured = numpy.zeros((23,), kinds)
    structured["id"] = y
    structured["box"] = numpy.arange(92).reshape(23, 2, 2)
    structured["rgb"][:, 1] = y
    structured["ok"] = y % 3 == 0
    numpy.save(tmp_path / "structured.npy", structured)
    megatron_index(tmp_path / "m.idx", numpy.int32, [300, 0, 450, 200])
    paths = [tmp_path / "x.npy", tmp_path / "y.npy"]
    return {
        "one": leat_data.Tensors(x),
        "numpy": leat_data.Tensors(y),
        "two": leat_data.Tensors(x, y),
        "named": leat_data.Tensors(x=x, y=y),
        "dict": leat_data.Tensors({"x": x, 5: y}),
        "list": leat_data.Tensors([x, y]),
        "point": leat_data.Tensors(Point(x, y)),
        "npy": leat_data.Npy(paths[0]),
        "npy_two": leat_data.Npy(*paths),
        "npy_named": leat_data.Npy(image=paths[0], label=str(paths[1])),
        "npy_swapped": leat_data.Npy(tmp_path / "swapped.npy"),
        "npy_fortran": leat_data.Npy(tmp_path / "fortran.npy"),
        "npy_bools": leat_data.Npy(tmp_path / "bools.npy"),
        "tokens": leat_data.Tokens(tmp_path / "t16.bin", 10),
        "tokens_overlap": leat_data.Tokens(tmp_path / "t16.bin", 11, stride=10),
        "tokens_apart": leat_data.Tokens(tmp_path / "t16.bin", 10, stride=25),
        "tokens32": leat_data.Tokens(str(tmp_path / "t32.bin"), 64, dtype="int32"),
        "npz": leat_data.Npy(tmp_path / "both.npz"),
        "npy_structured": leat_data.Npy(tmp_path / "structured.npy"),
        "npy_mixed": leat_data.Npy(a=tmp_path / "structured.npy", b=paths[0]),
        "tokens_index": leat_data.Tokens(tmp_path / "t32.bin", 30, index=tmp_path / "m.idx"),
        "tokens_offset": leat_data.Tokens(tmp_path / "t16.bin", 30, offset=100),
        "tokens_all": leat_data.Tokens(tmp_path / "t16.bin", 1000),
    }


NAMES = (
    "one numpy two named dict list point npy npy_two npy_named npy_swapped npy_fortran npy_bools "
    "tokens tokens_overlap tokens_apart tokens32 tokens_all npz npy_structured npy_mixed "
    "tokens_index tokens_offset"
).split()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        )
    if type(one) is not type(other) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return all(same(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("name", NAMES)
def test_datasets_are_torch_datasets(name, tmp_path):
    dataset = tensors_of(tmp_path)[name]
    loader = leat.DataLoader(dataset, 4)
    assert isinstance(dataset, Dataset) and loader.plan().lowered, loader.plan()
    through_torch = list(torch.utils.data.DataLoader(dataset, 4))
    assert same(list(loader), through_torch)
    copied = pickle.loads(pickle.dumps(dataset))
    assert same(list(leat.DataLoader(copied, 4)), through_torch)
    assert same(dataset[0], dataset.__getitems__([0])[0]) and same(
        dataset[-1], dataset[len(dataset) - 1]
    )
    for beyond in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[beyond]
    picked = [len(dataset) - 1, 0]
    expected = list(torch.utils.data.DataLoader(dataset, 2, sampler=picked))
    assert same(list(leat.DataLoader(dataset, 2, sampler=picked)), expected)


def test_datasets_in_workers(tmp_path):
    dataset = tensors_of(tmp_path)["npy_named"]
    batches = torch.utils.data.DataLoader(
        dataset, 4, num_workers=1, multiprocessing_context="spawn"
    )
    assert same(list(batches), list(leat.DataLoader(dataset, 4)))


def test_datasets_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="different lengths"):
        leat_data.Tensors(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="no rows"):
        leat_data.Tensors(torch.tensor(1))
    with pytest.raises(TypeError, match="nothing"):
        leat_data.Tensors()
    with pytest.raises(TypeError, match="by position"):
        leat_data.Tensors(torch.ones(3), x=torch.ones(3))
    with pytest.raises(FileNotFoundError):
        leat_data.Npy(tmp_path / "absent.npy")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="whole number"):
        leat_data.Tokens(tmp_path / "odd.bin", 1)
    with pytest.raises(ValueError, match="dtype"):
        leat_data.Tokens(tmp_path / "odd.bin", 1, dtype="float32")
    with pytest.raises(ValueError, match="at least 1"):
        leat_data.Tokens(tmp_path / "odd.bin", 0)
    numpy.savez_compressed(tmp_path / "packed.npz", x=numpy.ones(5))
    with pytest.raises(ValueError, match="compressed"):
        leat_data.Npy(tmp_path / "packed.npz")
    (tmp_path / "bad.idx").write_bytes(b"MMIDIDX\0\0" + b"\1" * 40)
    with pytest.raises(ValueError, match="bad.idx"):
        leat_data.Tokens(tmp_path / "odd.bin", 1, index=tmp_path / "bad.idx")
    (tmp_path / "short.bin").write_bytes(b"ab" * 5)
    short = leat_data.Tokens(tmp_path / "short.bin", 6)
    assert len(short) == 0 and list(leat.DataLoader(short)) == []


# ---- The face.


def test_tensors_are_handed_over_without_a_copy():
    loader = leat.DataLoader(torch.zeros(1000, 100), 100)
    batch = next(iter(loader))
    assert batch.is_contiguous() and batch.data_ptr() % 64 == 0
    assert loader.stats().slots_held == 1
    batch[:] = 5  # may be written
    array = batch.numpy()
    del batch
    assert loader.stats().slots_held == 1 and (array == 5).all()
    del array
    assert loader.stats().slots_held == 0


def test_plans():
    tensors = TensorDataset(torch.ones(5, 3), torch.ones(5))
    plan = leat.DataLoader(tensors, 2, True).plan()
    assert plan.lowered and not plan.reasons and "float32[3], float32[]" in str(plan)
    for loader, reason in (
        (leat.DataLoader(tensors, collate_fn=list), "collate_fn is list"),
        (leat.DataLoader(tensors, None), "single samples"),
        (leat.DataLoader(Rows(5)), "Rows is a dataset with code of its own"),
        (leat.DataLoader(Stream()), "iterable"),
        (leat.DataLoader(torch.ones(5, requires_grad=True)), "requires a gradient"),
        (leat.DataLoader(torch.nn.Parameter(torch.ones(5))), "is a Parameter"),
        (leat.DataLoader(torch.eye(5).to_sparse()), "layout"),
        (leat.DataLoader(torch.ones(5, 0)), "empty"),
        (leat.DataLoader(numpy.array(["a", "b"])), "type <U1"),
        (leat.DataLoader(Subset(tensors, ["a"])), "Subset"),
    ):
        plan = loader.plan()
        assert not plan.lowered and reason in str(plan), str(plan)
        assert all(where == "torch" for _, _, where in plan.rows)
    assert "rank 1 of 3" in str(over(9, 2, rank=1, world_size=3).plan())


def test_arguments_that_are_refused():
    x = torch.ones(5)
    for wrong in (
        {"order": "random"},
        {"order": "full", "shuffle": False},
        {"order": "sequential", "shuffle": True},
        {"on_error": "ignore"},
        {"seed": -1},
        {"threads": 0},
        {"memory_budget": 0},
        {"rank": 0},
        {"world_size": 2},
        {"rank": 2, "world_size": 2},
    ):
        with pytest.raises(ValueError):
            leat.DataLoader(x, **wrong)
    for wrong in ({"seed": 1.5}, {"threads": True}, {"memory_budget": "1GB"}):
        with pytest.raises(TypeError):
            leat.DataLoader(x, **wrong)
    with pytest.raises(RuntimeError, match="device"):
        leat.DataLoader(x, device="abacus")
    with pytest.raises(ValueError, match="iterable"):
        leat.DataLoader(Stream(), order="full")


def test_a_framework_can_make_it_again():
    """Lightning makes a loader anew from the attributes that its constructor's parameters name."""
    loader = leat.DataLoader(
        torch.arange(20), 4, order="full", seed=3, threads=2, memory_budget=1 << 20, device="cpu"
    )
    assert isinstance(loader, torch.utils.data.DataLoader)
    parameters = inspect.signature(type(loader).__init__).parameters
    given = {
        name: getattr(loader, name)
        for name in parameters
        if hasattr(loader, name) and name not in ("batch_sampler", "shuffle", "kwargs")
    }
    assert {"device", "order", "seed", "on_error", "threads", "memory_budget", "autotune"} < set(
        given
    )
    given["sampler"] = torch.utils.data.DistributedSampler(loader.dataset, 2, 0, shuffle=False)
    again = type(loader)(**given)
    assert again.seed == 3 and numbers(again) == list(range(0, 20, 2))
    told = []
    given["sampler"].set_epoch = told.append
    again.set_epoch(7)
    assert told == [7]


def test_device():
    batch = next(iter(leat.DataLoader(leat_data.Tensors(x=torch.ones(4)), 2, device="meta")))
    assert batch["x"].device.type == "meta"
    batch = next(iter(leat.DataLoader([(1, "a")], device="meta")))
    assert batch[0].device.type == "meta" and batch[1] == ("a",)


def test_stats():
    loader = leat.DataLoader(torch.zeros(1000, 25), 100, True)
    assert loader.stats().batches == 0
    list(loader)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.bytes) == (10, 1000, 100000)
    assert stats.elapsed_s > 0 and stats.samples_per_s > 0 and stats.errors == []
    assert 0 < stats.memory_bytes <= stats.memory_most_bytes
    assert "1000 samples" in str(stats)
    torchs = leat.DataLoader(Rows(10), 5)
    list(torchs)
    assert torchs.stats().batches == 2 and torchs.stats().wait_s > 0


def test_under_leat_run(train):
    """The batches of both kinds of loader are recorded as those of torch's are."""
    run = train(
        """
        import os, sys
        sys.path.insert(0, os.environ["LEAT_HOME"])
        import leat

        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        def fit(loader):
            for x, y in loader:
                optimizer.zero_grad()
                loss_of(model, x, y).backward()
                optimizer.step()

        fast = leat.DataLoader(TensorDataset(torch.rand(101, 4), torch.zeros(101).long()), 10, True)
        assert fast.plan().lowered
        fit(fast)
        fit(fast)
        fit(leat.DataLoader(Rows(23), 4))
    """,
        LEAT_HOME=os.path.dirname(PACKAGE),
    )
    batches = run.main.batches()
    assert [samples(r) for r in batches] == ([10] * 10 + [1]) * 2 + [4] * 5 + [3]
    assert len({r.id for r in batches}) == 2 and len(run.main.of("optimizer")) == 28
    first, second = run.main.loaders
    assert (first.dataset, first.length, first.batch_size) == ("TensorDataset", 101, 10)
    assert (second.dataset, second.length, second.batch_size) == ("Rows", 23, 4)
    assert "script.py" in first.where
