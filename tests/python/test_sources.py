"""What the loader promises, for every source that reads files: broken off or killed it leaves
nothing behind, a state goes on exactly once, a bad sample is never a wrong one. A row of sample i
is four times the number i."""

import gc
import io
import os
import signal
import subprocess
import tarfile
import time

import h5py
import lmdb
import numpy
import pytest
from conftest import PACKAGE
from loader_kit import (
    anonymous_bytes,
    files_now,
    leat,
    leat_data,
    repeated,
    run_script,
    threads_now,
    threads_settle,
)

COUNT, BAD = 60, 17  # samples; index of the damaged one


def row(i):
    return numpy.full(4, i, numpy.int64)


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def write_npy(folder, bad):
    numpy.save(folder / "rows.npy", numpy.stack([row(i) for i in range(COUNT)]))
    return lambda: leat_data.Npy(folder / "rows.npy")


def write_tokens(folder, bad):
    numpy.arange(COUNT, dtype=numpy.int32).repeat(4).tofile(folder / "rows.bin")
    return lambda: leat_data.Tokens(folder / "rows.bin", 4, dtype="int32")


def write_hdf5(folder, bad):
    """A chunk has one row, so that damage affects one row."""
    path = folder / "rows.h5"
    with h5py.File(path, "w") as file:
        data = numpy.stack([row(i) for i in range(COUNT)])
        rows = file.create_dataset("x", data=data, chunks=(1, 4), compression="gzip")
        chunk = rows.id.get_chunk_info(BAD)
    if bad:
        with open(path, "r+b") as file:
            file.seek(chunk.byte_offset)
            file.write(b"\xff" * chunk.size)
    return lambda: leat_data.Hdf5(path, "x", cache_bytes=1)


def write_lmdb(folder, bad):
    env = lmdb.open(os.fspath(folder / "rows"), map_size=1 << 20)
    with env.begin(write=True) as transaction:
        for i in range(COUNT):
            transaction.put(b"%04d" % i, b"short" if bad and i == BAD else row(i).tobytes())
    env.close()
    return lambda: leat_data.Lmdb(folder / "rows", ("int64", (4,)))


def write_files(folder, bad):
    (folder / "rows").mkdir()
    for i in range(COUNT):
        value = npy(row(i))
        (folder / "rows" / f"{i:04d}.npy").write_bytes(value[:-1] if bad and i == BAD else value)
    return lambda: leat_data.Files(folder / "rows", "npy")


def write_tar(folder, bad, name="rows.tar"):
    mode = "w:gz" if name.endswith("gz") else "w"
    with tarfile.open(folder / name, mode) as archive:
        for i in range(COUNT):
            value = npy(row(i))
            member = tarfile.TarInfo(f"{i:04d}.npy")
            value = value[:-1] if bad and i == BAD else value
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))
    return lambda: leat_data.Tar(os.fspath(folder / name), fields={"npy": "npy"})


def write_packed_tar(folder, bad):
    return write_tar(folder, bad, "rows.tar.gz")


SOURCES = {
    "npy": write_npy,
    "tokens": write_tokens,
    "hdf5": write_hdf5,
    "lmdb": write_lmdb,
    "files": write_files,
    "tar": write_tar,
    "tar.gz": write_packed_tar,
}
CAN_BE_BAD = ("hdf5", "lmdb", "files", "tar", "tar.gz")


def numbers(loader):
    """The samples of the rest of an epoch. A row must hold one sample only."""
    found = []
    for batch in loader:
        rows = batch["npy"] if isinstance(batch, dict) else batch
        assert rows.shape[1:] == (4,) and bool((rows == rows[:, :1]).all())
        found += rows[:, 0].tolist()
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for data. TMPDIR is another, empty one."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", os.fspath(tmp_path / "tmp"))
    return tmp_path


def maps_of(folder):
    with open("/proc/self/maps") as maps:
        return [line for line in maps if os.fspath(folder) in line]


# ---- Nothing is left behind.


@pytest.mark.parametrize("name", SOURCES)
def test_breaking_out_leaks_nothing(folder, name):
    make = SOURCES[name](folder, False)
    assert sorted(numbers(leat.DataLoader(make(), 7))) == list(range(COUNT))
    gc.collect()
    threads, files = threads_now(), files_now()
    for turn in range(10):
        loader = leat.DataLoader(make(), 7, True, num_threads=3)
        iterator = iter(loader)
        next(iterator)
        if turn % 2:
            del loader  # the iterator keeps what it needs
            assert len(numbers(iterator)) == COUNT - 7
        del iterator
    loader = None
    gc.collect()
    assert threads_settle(threads) and files_now() == files
    assert not maps_of(folder) and not os.listdir(folder / "tmp")


KILLED = """
    import sys
    sys.path.insert(0, {tests!r})
    import pathlib, test_sources
    from loader_kit import leat
    dataset = test_sources.SOURCES[sys.argv[1]](pathlib.Path(sys.argv[2]), False)()
    loader = leat.DataLoader(dataset, 7, True, num_threads=3)
    print("on", flush=True)
    while True:
        for batch in loader:
            pass
"""


def group_is_gone(group):
    """Whether all processes of the group end within some seconds."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("name", SOURCES)
def test_sigkill_leaks_nothing(folder, name):
    """SIGKILL in the middle of an epoch: no process, no temporary file, no shared memory."""
    shared = set(os.listdir("/dev/shm"))
    script = KILLED.format(tests=os.path.dirname(__file__))
    run = run_script(script, name, os.fspath(folder), start_new_session=True)
    try:
        assert run.stdout.readline() == "on\n", run.stderr.read()
        time.sleep(0.05)
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == -signal.SIGKILL
    assert group_is_gone(run.pid)
    assert not os.listdir(folder / "tmp")
    assert not {name for name in set(os.listdir("/dev/shm")) - shared if "leat" in name}


@pytest.mark.alone
@pytest.mark.parametrize("name", SOURCES)
def test_memory_does_not_grow_over_epochs(folder, name):
    """What an epoch takes is there for the next one. A megabyte is for what the test itself does;
    of 50 epochs it is 20 kB each, or 350 bytes a sample."""
    loader = leat.DataLoader(SOURCES[name](folder, False)(), 7, True, num_threads=2, autotune=False)
    for _ in range(10):
        numbers(loader)
    gc.collect()
    before = anonymous_bytes()
    for _ in range(50):
        numbers(loader)
    gc.collect()
    assert anonymous_bytes() - before < 1 << 20


# ---- The same without Python.


def words_for(name, folder):
    """Arguments of the C example."""
    if name == "files":
        return ["files", *sorted(map(os.fspath, (folder / "rows").iterdir()))]
    ends = {"npy": ".npy", "tokens": ".bin", "lmdb": "", "tar.gz": ".tar.gz"}
    more = {"tokens": ["8"]}  # 8 of uint16 are 4 of int32
    path = os.fspath(folder / ("rows" + ends.get(name, ".tar")))
    return [name.split(".")[0], path, *more.get(name, [])]


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "hdf5"])
def test_the_c_example_reads_every_source(folder, name):
    """Half of an epoch, then the rest with another loader: each sample once."""
    SOURCES[name](folder, False)
    example = os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "examples", "read_everything")
    if not os.path.exists(example):
        pytest.skip("the examples were not built")
    done = subprocess.run([example, *words_for(name, folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} samples, 0 bad ones" in done.stdout
    if name != "files":  # whose bytes include headers
        assert f"add up to {4 * sum(range(COUNT))}\n" in done.stdout


# ---- A state goes on exactly once.


@pytest.mark.parametrize("order", ("full", "window"))
@pytest.mark.parametrize("name", SOURCES)
def test_a_state_at_every_batch(folder, name, order):
    """Saved by one rank and loaded by one, two and three with other numbers of threads."""
    make = SOURCES[name](folder, False)
    options = {"shuffle": True, "order": order, "seed": 5}
    dataset = make()
    for had in range(COUNT // 7 + 1):
        loader = leat.DataLoader(dataset, 7, num_threads=2, **options)
        iterator = iter(loader)
        before = numbers([next(iterator) for _ in range(had)])
        state = loader.state_dict()
        del iterator
        for world in (1, 2, 3):
            after = []
            for rank in range(world):
                again = leat.DataLoader(
                    make(), 5, num_threads=1 + rank, rank=rank, world_size=world, **options
                )
                again.load_state_dict(state)
                after += numbers(again)
            if had:  # else no pass was begun
                left = set(range(COUNT)) - set(before)
                assert set(after) >= left, (had, world)
                assert len(after) == len(left) + repeated(len(left), 5, world), (had, world)


# ---- A bad sample is never a wrong one.


@pytest.mark.parametrize("policy", ("skip", "replace"))
@pytest.mark.parametrize("name", CAN_BE_BAD)
def test_a_bad_sample_follows_on_error(folder, name, policy):
    """Three epochs: a slot never shows data of an earlier batch."""
    dataset = SOURCES[name](folder, True)()
    loader = leat.DataLoader(dataset, 7, True, on_error=policy, seed=1, num_threads=2)
    for epoch in range(1, 4):
        sizes = []

        def batches(loader=loader, sizes=sizes):
            for batch in loader:
                sizes.append(len(batch["npy"] if isinstance(batch, dict) else batch))
                yield batch

        found = numbers(batches())
        assert set(found) == set(range(COUNT)) - {BAD}
        assert len(found) == (COUNT if policy == "replace" else COUNT - 1)
        assert sizes[:-1] == [7] * (len(sizes) - 1)
        errors = loader.stats().errors
        assert [index for _, index, _ in errors] == [BAD] * epoch
        assert os.fspath(folder)[-30:] in errors[0][2]


@pytest.mark.parametrize("name", CAN_BE_BAD)
def test_after_a_bad_sample_the_rest_is_read(folder, name):
    loader = leat.DataLoader(SOURCES[name](folder, True)(), 7, num_threads=2)
    iterator, found, raised = iter(loader), [], 0
    while True:
        try:
            found += numbers([next(iterator)])
        except StopIteration:
            break
        except (ValueError, OSError):
            raised += 1
    assert raised == 1
    assert found == [i for i in range(COUNT) if i // 7 != BAD // 7]
