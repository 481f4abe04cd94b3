"""The parts of making a batch: exact counts, true times, and no other change."""

import sys

import pytest

SLEEP_MS = 5
# On a busy machine a sleep is never shorter, and rarely longer than by this factor.
SLACK = 4

NAPS = f"""
import time

class Naps(Dataset):
    def __init__(self, rows): self.rows = rows
    def __len__(self): return self.rows
    def __getitem__(self, i):
        time.sleep({SLEEP_MS / 1000})
        return torch.full((500,), float(i)), i

def nap_collate(items):
    time.sleep({2 * SLEEP_MS / 1000})
    return torch.utils.data.default_collate(items)
"""


def parts(processes, loader=0):
    """{part: (n, mean in ms)} over processes."""
    out = {}
    for process in processes:
        for (number, name), part in process.parts().items():
            if number == loader:
                n, total = out.get(name, (0, 0))
                out[name] = n + part.n, total + part.total_ns
    return {name: (n, total / n / 1e6) for name, (n, total) in out.items()}


def near(measured, ms):
    return ms <= measured <= ms * SLACK


def check_naps(found, samples, batches, size):
    assert found["sample"][0] == samples and near(found["sample"][1], SLEEP_MS)
    assert found["fetch"][0] == batches and near(found["fetch"][1], SLEEP_MS * samples / batches)
    assert found["collate"][0] == batches and near(found["collate"][1], 2 * SLEEP_MS)


@pytest.mark.alone
def test_without_workers(train):
    run = train(
        NAPS
        + """
for batch in DataLoader(Naps(23), batch_size=3, collate_fn=nap_collate):
    pass
"""
    )
    found = parts([run.main])
    check_naps(found, 23, 8, 3)
    assert set(found) == {"sample", "fetch", "collate"}
    assert run.main.part("sample").max_ns >= SLEEP_MS * 1e6
    assert run.main.header["missing"] == "" and run.main.header["worker_loader"] == -1


@pytest.mark.alone
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers(train, method):
    """The second loader: its number must reach its workers, by every start method."""
    run = train(
        NAPS
        + f"""
if __name__ == "__main__":
    list(DataLoader(Rows(2), batch_size=2, num_workers=1, multiprocessing_context="{method}"))
    n = 0
    for batch in DataLoader(Naps(23), batch_size=3, collate_fn=nap_collate, num_workers=2,
                            multiprocessing_context="{method}"):
        n += 1
    print(n)
"""
    )
    assert run.stdout == "8\n"
    first, *workers = sorted(run.workers, key=lambda p: p.header["worker_loader"])
    assert first.header["worker_loader"] == 0 and parts([first])["sample"][0] == 2
    assert [p.header["worker_loader"] for p in workers] == [1, 1]
    found = parts(workers, 1)
    check_naps(found, 23, 8, 3)
    assert found["pickle"][0] == 8
    assert found["idle"][0] == 8 - 2  # there is no idle time before the first batch
    assert set(found) == {"sample", "fetch", "collate", "pickle", "idle"}
    main = parts([run.main], 1)
    assert main["unpickle"][0] == 8 and set(main) == {"unpickle"}
    sent = sum(p.part("pickle", 1).bytes for p in workers)
    # Tensors are in shared memory; some hundred bytes a batch are left.
    assert sent == run.main.part("unpickle", 1).bytes and 8 * 100 < sent < 8 * 2000
    ready = run.main.ready(1)
    assert sum(ready.values()) == 8 and max(ready) <= 4


@pytest.mark.alone
def test_bytes_and_time_of_large_batches(train):
    run = train(
        """
import time
class Slow:
    def __reduce__(self):
        time.sleep(0.02)
        return Slow, ()
class Heavy(Dataset):
    def __len__(self): return 7
    def __getitem__(self, i): return bytes(1_000_000), Slow()
for batch in DataLoader(Heavy(), batch_size=None, num_workers=1): pass
"""
    )
    (worker,) = run.workers
    pickled = worker.part("pickle")
    assert pickled.n == 7 and 7e6 < pickled.bytes < 7.1e6
    assert near(pickled.total_ns / 7e6, 20)
    assert run.main.part("unpickle").bytes == pickled.bytes


@pytest.mark.alone
def test_idle_workers_and_batches_ready(train):
    """A loop slower than its workers: they wait, and batches are ready."""
    run = train(
        """
import time
loader = DataLoader(Rows(24), batch_size=2, num_workers=2, prefetch_factor=2)
for batch in loader:
    time.sleep(0.05)
"""
    )
    ready = run.main.ready()
    assert sum(ready.values()) == 12 and max(ready) <= 2 * 2
    assert ready.get(4, 0) + ready.get(3, 0) >= 6
    found = parts(run.workers)
    # Each makes every second batch, and four are requested ahead.
    assert found["idle"][0] == 12 - 2 and 50 * 6 < found["idle"][0] * found["idle"][1] < 2000


@pytest.mark.alone
@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_whole_batches_and_single_samples(train, workers):
    run = train(
        NAPS
        + f"""
class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for i in range(info.id if info else 0, 11, info.num_workers if info else 1):
            time.sleep({SLEEP_MS / 1000})
            yield torch.zeros(3)

class Whole(Naps):
    def __getitems__(self, indices):
        time.sleep({SLEEP_MS / 1000} * len(indices))
        return [(torch.zeros(3), i) for i in indices]

options = dict(num_workers={workers})
print(*[sum(1 for _ in loader) for loader in (
    DataLoader(Stream(), batch_size=2, **options),
    DataLoader(Stream(), batch_size=None, **options),
    DataLoader(Stream(), batch_size=2, drop_last=True, **options),
    DataLoader(Whole(11), batch_size=2, **options),
    DataLoader(Naps(11), batch_size=None, **options),
)])
"""
    )
    makers = run.workers if workers else [run.main]
    count = [int(n) for n in run.stdout.split()]
    made = [parts(makers, i) for i in range(5)]
    assert [m["collate"][0] for m in made] == [m["fetch"][0] for m in made] == count
    # The odd last sample of a stream is made and dropped.
    assert [m["sample"][0] for m in made] == [11] * 5
    assert all(near(m["sample"][1], SLEEP_MS) for m in made)
    if workers:
        assert [m["pickle"][0] for m in made] == count
        assert [parts([run.main], i)["unpickle"][0] for i in range(5)] == count


@pytest.mark.alone
def test_fast_batches_are_measured_in_part(train):
    """All of the first 64 batches are measured, then every 16th; the samples of the first batches, then of
    every 64th."""
    run = train(
        """
data = TensorDataset(torch.zeros(161 * 8, 2))
class Quick:  # the quickest there is: the machine may be slow, but a list is not
    def __len__(self): return 161 * 64
    def __getitem__(self, i): return 0
for batch in DataLoader(Quick(), batch_size=64): pass
"""
    )
    main = run.main
    batches = main.part("fetch").n
    assert main.part("collate").n == batches
    assert 70 <= batches < 100  # 64 + 97 / 16; a batch or two may be slow on a busy machine
    timed = main.part("sample").n
    assert timed % 64 == 0 and 4 * 64 <= timed < 40 * 64
    assert main.part("sample").total_ns <= main.part("fetch").total_ns


@pytest.mark.alone
def test_fast_samples_are_measured_in_part(train):
    """Some hundred in each process, and then the fewer the faster they are; every batch is measured."""
    run = train(
        """
class Medium:  # tens of microseconds
    def __len__(self): return 161 * 64
    def __getitem__(self, i): return sum(range(3000))
for batch in DataLoader(Medium(), batch_size=64, num_workers=1): pass
"""
    )
    found = parts(run.workers)
    assert found["fetch"][0] == found["collate"][0] == 161
    timed = found["sample"][0]
    assert timed % 64 == 0 and 256 <= timed < 161 * 64 / 2
    assert found["sample"][1] < 0.5  # ms


def test_attribute_reads_of_the_fetcher_stay_fast(train, tmp_path):
    """Python specialises the reads of the fetcher's attributes, of which there is one for each sample."""
    script = """
import dis, sys
from torch.utils.data._utils.fetch import _MapDatasetFetcher
def codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from codes(constant)
if sys.version_info >= (3, 11):
    for batch in DataLoader(Rows(40 * 64), batch_size=64): pass
    print(sorted({i.opname for code in codes(_MapDatasetFetcher.fetch.__code__)
                  for i in dis.get_instructions(code, adaptive=True) if i.argrepr == "dataset"}))
"""
    plain = train(script, inject=False).stdout
    (tmp_path / "leat.sock").unlink()
    assert "LOAD_ATTR_INSTANCE_VALUE" in plain or sys.version_info < (3, 11)
    assert train(script).stdout == plain


@pytest.mark.alone
def test_persistent_workers_and_evaluation_between(train):
    """The time between two iterations is not idle time."""
    run = train(
        """
import time
class Slow(Rows):  # of quick ones not every sample is timed
    def __getitem__(self, i):
        time.sleep(0.001)
        return super().__getitem__(i)
loader = DataLoader(Slow(12), batch_size=2, num_workers=2, persistent_workers=True)
for epoch in range(3):
    for batch in loader: pass
    time.sleep(1)
"""
    )
    found = parts(run.workers)
    assert found["fetch"][0] == found["pickle"][0] == 18 and found["sample"][0] == 36
    assert found["idle"][0] == 18 - 3 * 2
    assert all(p.part("idle").max_ns < 0.9e9 for p in run.workers)
    assert parts([run.main])["unpickle"][0] == 18


ODD = """
import time
class Broken(Dataset):
    def __len__(self): return 6
    def __getitem__(self, i):
        time.sleep(0.001)  # quick samples are not all timed
        if i == 5:
            raise KeyError("row 5", 5)
        return i

class BrokenStream(IterableDataset):
    def __iter__(self):
        yield 1
        raise ValueError("the stream broke")

class NoIterator(IterableDataset):
    def __iter__(self):
        raise OSError(5, "no stream")

def collate(items):
    raise ArithmeticError("cannot collate")

if __name__ == "__main__":
    for dataset, options in (
        (Broken(), {}), (BrokenStream(), {}), (NoIterator(), {}), (Rows(4), {"collate_fn": collate})
    ):
        try:
            for batch in DataLoader(dataset, batch_size=2, num_workers=%d, **options):
                pass
        except Exception as error:
            import traceback
            print(type(error).__name__, "|", error, "|", error.args)
            if %d:
                continue
            for frame in traceback.extract_tb(error.__traceback__):
                print(frame.filename, frame.lineno, frame.name)
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_exceptions_pass_unchanged(train, tmp_path, workers):
    """Type, text and, in the text that a worker sends, the frames are as without leat. Without workers
    there is one frame more, that of DataLoader.__iter__."""
    script = ODD % (workers, workers)
    bare = train(script, inject=False).stdout
    (tmp_path / "leat.sock").unlink()
    run = train(script)

    def frames(text):
        return "".join(line for line in text.splitlines(True) if "/leat/hooks/" not in line)

    assert "row 5" in bare and "the stream broke" in bare and "no stream" in bare
    assert frames(run.stdout) == bare
    assert ("/leat/hooks/" in run.stdout) == (workers == 0)
    makers = run.workers if workers else [run.main]
    assert parts(makers, 0)["collate"][0] == 2 and parts(makers, 0)["sample"][0] == 5
    assert "collate" not in parts(makers, 3) and parts(makers, 3)["fetch"][0] >= 1


@pytest.mark.parametrize("workers", [0, 2])
def test_user_code_never_gets_a_proxy(train, workers):
    """In the dataset, the collate function, worker_init_fn and get_worker_info()."""
    run = train(
        f"""
import copy, pickle
class Seen(Dataset):
    def __init__(self): self.tag = "mine"
    def __len__(self): return 6
    def __getattr__(self, name):
        if name.startswith("odd"):
            return name
        raise AttributeError(name)
    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        assert info is None or info.dataset is self
        assert type(self) is Seen and self.tag == "mine" and self.odd_one == "odd_one"
        assert pickle.loads(pickle.dumps(self)).tag == copy.copy(self).tag == "mine"
        return i

class Collate:
    def __call__(self, items):
        assert type(self) is Collate and type(items) is list
        pickle.dumps(self)
        return items

def begin(worker):
    info = torch.utils.data.get_worker_info()
    assert type(info.dataset) is Seen and info.id == worker
    list(DataLoader(Rows(4)))  # a loader of the worker's own

data, collate = Seen(), Collate()
for dataset in data, [1, 2, 3, 4, 5, 6], torch.arange(6), {{i: i for i in range(6)}}, range(6):
    loader = DataLoader(dataset, batch_size=2, num_workers={workers}, collate_fn=collate,
                        worker_init_fn=begin if dataset is data and {workers} else None)
    it = iter(loader)
    got = [int(x) for batch in it for x in batch]
    assert sorted(got) == list(range(6)) or got == [1, 2, 3, 4, 5, 6], got
    assert loader.dataset is dataset and loader.collate_fn is collate
    if not {workers}:
        fetcher = it._dataset_fetcher
        assert fetcher.dataset is dataset
print("fine")
"""
    )
    assert run.stdout == "fine\n"
    makers = run.workers if workers else [run.main]
    assert [parts(makers, i)["collate"][0] for i in range(5)] == [3] * 5
    assert sum(parts(makers, i)["fetch"][0] for i in range(5)) == 15  # none of the worker itself


def test_nested_loaders_and_other_queues_are_not_counted(train):
    run = train(
        """
import multiprocessing
class Nested(IterableDataset):
    def __iter__(self):
        for batch in DataLoader(Rows(10), batch_size=2):
            yield batch[0][0]

def answer(q, a):
    while (item := q.get()) is not None:
        a.put((1, item))

class Asks(Dataset):
    def __init__(self, q, a): self.q, self.a = q, a
    def __len__(self): return 6
    def __getitem__(self, i):
        self.q.put((1, i))
        return self.a.get()[1][1]

q, a = multiprocessing.Queue(), multiprocessing.Queue()
other = multiprocessing.Process(target=answer, args=(q, a))
other.start()
list(DataLoader(Nested(), batch_size=1))
list(DataLoader(Asks(q, a), batch_size=2))
list(DataLoader(Asks(q, a), batch_size=2, num_workers=1))
q.put(None)
other.join()
"""
    )
    assert parts([run.main], 0)["sample"][0] == parts([run.main], 0)["collate"][0] == 5
    assert "unpickle" not in parts([run.main], 1) and parts([run.main], 1)["sample"][0] == 6
    (worker,) = run.workers
    assert parts([worker], 2)["pickle"][0] == 3
    assert parts([run.main], 2)["unpickle"][0] == 3


PIN = """
import threading, queue, types
from torch.utils.data._utils import pin_memory
from multiprocessing import Queue
class Item:  # stands for a tensor, which cannot be pinned without a GPU
    def pin_memory(self, *args):
        return "pinned"

data = Queue()
data._leat = 3
out = queue.Queue()
done = threading.Event()
if hasattr(torch, "accelerator"):  # of 2.6
    torch.accelerator.set_device_index = lambda device: None
for i in range(7):
    data.put((i, [1, [Item.pin_memory(None), 2]]))
thread = threading.Thread(
    target=pin_memory._pin_memory_loop, args=(data, out, 0, done, "fake"), daemon=True
)
thread.start()
got = [out.get(timeout=20) for _ in range(7)]
done.set()
thread.join()
assert [i for i, _ in got] == list(range(7)), got
pin_memory.pin_memory([1, 2])  # not on its way to anybody
from leat.hooks import process
process.take_main_role()
"""


def test_pinning(train):
    """Without a GPU: the calls of the pin loop are counted, once each, for its loader."""
    run = train(PIN)
    assert run.main.part("pin", 3).n == run.main.part("unpickle", 3).n == 7
    assert set(run.main.parts()) == {(3, "pin"), (3, "unpickle")}


def test_current_work(train):
    run = train(
        """
import threading
from leat import _record
SAMPLE, COLLATE = _record.PART_SAMPLE, _record.PART_COLLATE
def mark(part):
    return part, threading.get_native_id(), threading.get_ident(), 0
class Looks(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i):
        assert _record.current_work() == mark(SAMPLE)
        return i
def collate(items):
    assert _record.current_work() == mark(COLLATE)
    return items
for workers in 0, 2:
    for batch in DataLoader(Looks(), batch_size=2, num_workers=workers, collate_fn=collate):
        assert _record.current_work()[0] == -1
    assert _record.current_work()[0] == -1
""".replace("mark(SAMPLE)", "mark(SAMPLE)[:3] + (_record.current_work()[3],)").replace(
            "mark(COLLATE)", "mark(COLLATE)[:3] + (_record.current_work()[3],)"
        )
    )
    assert run.stderr == ""


def test_remove_restores_loaders_and_workers(train):
    run = train(
        """
from multiprocessing import queues, reduction
from torch.utils.data import _DatasetKind
from torch.utils.data._utils import fetch, pin_memory, worker
from leat.hooks import install, user_code
it = iter(DataLoader(Rows(9)))
next(it)
install.remove()
assert queues._ForkingPickler is reduction.ForkingPickler
for thing in (_DatasetKind.create_fetcher, pin_memory.pin_memory, pin_memory._pin_memory_loop,
              worker._worker_loop, fetch._MapDatasetFetcher.fetch):
    assert not thing.__code__.co_filename.startswith(user_code.LEAT)
print(len(list(it)), len(list(DataLoader(Rows(9), num_workers=1))))
"""
    )
    assert run.stdout == "8 9\n"
