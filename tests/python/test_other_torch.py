"""A torch that is not as the hooks expect it: what cannot be known is reported as missing, the rest
is counted as ever, and the training notices nothing. Fakes, as no torch does all of it."""

import pytest
from test_worker_view import parts

EVERYTHING = {"sample", "fetch", "collate", "pickle", "idle"}

# A _worker_loop whose parameters stand in the opposite order, under other names where asked for.
LOOP = """
import inspect
from leat.hooks import workers
from torch.utils.data._utils import worker

plain = worker._worker_loop.__wrapped__
names = list(inspect.signature(plain).parameters)
theirs = [{renamed!r}.get(name, name) for name in names]
made = {{"plain": plain}}
if {anonymous}:
    made["changed"] = lambda *args: plain(*args[::-1])
else:
    exec(f"def changed({{', '.join(theirs[::-1])}}): return plain({{', '.join(theirs)}})", made)
loop = workers._make_worker_loop(made["changed"])
worker._worker_loop = lambda *args: loop(*args[::-1])

import time
class Naps(Rows):
    def __getitem__(self, i):
        time.sleep(0.001)  # quick samples are not all timed
        return super().__getitem__(i)
print(sum(len(x) for x, y in DataLoader(Naps(23), batch_size=3, num_workers=2)))
"""


@pytest.mark.parametrize(
    "unknown, lost",
    [
        ([], set()),
        (["worker_id"], set()),
        (["dataset"], {"sample", "fetch", "collate", "idle"}),
        (["data_queue"], {"pickle"}),
        (["dataset", "data_queue", "worker_id"], EVERYTHING),
    ],
)
def test_parameters_of_the_worker_loop(train, unknown, lost):
    script = LOOP.format(
        renamed={name: "other_" + name for name in unknown}, anonymous=len(unknown) == 3
    )
    run = train(script)
    assert run.stdout == "23\n" and run.stderr == ""
    found = parts(run.workers)
    assert set(found) == EVERYTHING - lost
    if "sample" in found:
        assert found["sample"][0] == 23 and found["idle"][0] == 8 - 2
    if "pickle" in found:
        assert found["pickle"][0] == 8
    numbers = [p.header["worker_id"] for p in run.workers]
    assert numbers == ([-1, -1] if "worker_id" in unknown else [0, 1])
    for process in run.workers:
        missing = process.header["missing"].split(", ") if process.header["missing"] else []
        told = {"_worker_loop: " + name for name in unknown}
        # A batch is sent by a worker none of whose fetchers is known: that is seen as well.
        if unknown == ["dataset"]:
            told.add("fetcher")
        assert set(missing) == told
        assert process.header["worker_loader"] == 0 and process.header["signals"] & 32
        ids = {r.id for r in process.of("worker_fetch")}
        assert ids == (set() if "fetch" in lost else {process.header["worker_id"] & 0xFFFFFFFF})
    assert run.main.header["missing"] == ""
    main = parts([run.main])
    assert main["unpickle"][0] == main["ready"][0] == 8


# Tasks that behave to torch like the tuples that it makes.
TASKS = """
from torch.utils.data import dataloader

class Lists(dict):
    def __setitem__(self, number, task):
        super().__setitem__(number, list(task))

class Padded(tuple):  # a place for the batch from the beginning
    def __len__(self): return 1
    def __add__(self, batch): return (self[0], *batch)

class Places(dict):
    def __setitem__(self, number, task):
        super().__setitem__(number, Padded((*task, None)) if len(task) == 1 else task)

def kept(self): return self.__dict__["_tasks"]
def keep(self, tasks): self.__dict__["_tasks"] = {kind}(tasks)
dataloader._MultiProcessingDataLoaderIter._task_info = property(kept, keep)
loader = DataLoader(Rows(23), batch_size=3, num_workers=2)
{late}
print(sum(len(x) for x, y in loader))
"""


# The look at a fresh iterator left out: what it would find, the steps find. Not padded tasks: those
# differ from torch's own only before the first batch has come.
BLIND = """
from leat.hooks import loaders
loaders._queue_of = lambda iterator, fresh=False: iterator._data_queue
"""


@pytest.mark.parametrize("kind, late", [("Lists", ""), ("Places", ""), ("Lists", BLIND)])
def test_tasks_of_an_iterator(train, kind, late):
    run = train(TASKS.format(kind=kind, late=late))
    assert run.stdout == "23\n" and run.stderr == ""
    assert run.main.header["missing"] == "_task_info"
    main = parts([run.main])
    assert set(main) == {"unpickle"} and main["unpickle"][0] == 8
    assert set(parts(run.workers)) == EVERYTHING


def test_iterators_without_what_is_asked_of_them(train):
    run = train("""
    from types import SimpleNamespace as Fake
    from leat.hooks import loaders, patch
    def reported(iterator):
        patch._missing.clear()
        queue = loaders._queue_of(iterator, fresh=True)
        loaders._name_queue(iterator, 5)
        return queue, patch._missing[:]
    assert reported(Fake(_num_workers=0)) == (None, [])
    assert reported(Fake(_num_workers=2)) == (None, ["_data_queue"])
    queue = Fake()
    assert reported(Fake(_data_queue=queue)) == (None, ["_task_info"])
    assert reported(Fake(_data_queue=queue, _task_info={0: (1, 2)})) == (None, ["_task_info"])
    whole = Fake(_data_queue=queue, _task_info={0: (1,)}, _worker_result_queue=queue)
    assert reported(whole) == (queue, []) and queue._leat == 5
    pins = Fake(_data_queue=queue, _task_info={}, _pin_memory_thread=1)
    assert reported(pins) == (queue, ["_worker_result_queue"])
    """)
    assert run.stderr == ""


# Each takes one thing away from the fetchers, and what torch needs is given back by other means.
FETCHERS = {
    "fetcher": """
class Other(fetch._MapDatasetFetcher): pass
fetch._MapDatasetFetcher = Other
original = Other.__mro__[1]
create = lambda *args: original(*args[1:])
""",
    "fetcher: data": """
class Fixed(fetch._MapDatasetFetcher):
    dataset = property(lambda self: self.data, lambda self, value: setattr(self, "data", value)
                       if not hasattr(self, "data") else 1 / 0)
fetch._MapDatasetFetcher = Fixed
create = lambda *args: Fixed(*args[1:])
""",
    "fetcher: collate_fn": """
class Own(fetch._MapDatasetFetcher):
    def fetch(self, rows):
        return torch.utils.data.default_collate([self.dataset[i] for i in rows])
fetch._MapDatasetFetcher = Own
create = lambda *args: Own(*args[1:])
""",
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("what", FETCHERS)
def test_fetchers(train, what, workers):
    run = train(
        f"""
from leat import _record
from leat.hooks import workers
from torch.utils.data import _DatasetKind
from torch.utils.data._utils import collate, fetch
{FETCHERS[what]}
_record.on_create(create, workers._dress, collate.default_collate)
class Slow(Rows):
    def __getitem__(self, i):
        time.sleep(0.001)
        return super().__getitem__(i)
import time
print(sum(len(x) for x, y in DataLoader(Slow(23), batch_size=3, num_workers={workers})))
"""
    )
    assert run.stdout == "23\n" and run.stderr == ""
    (maker,) = run.workers if workers else [run.main]
    found = parts([maker])
    assert maker.header["missing"] == what
    counts = {name: n for name, (n, _) in found.items() if name in ("sample", "fetch", "collate")}
    assert (
        counts
        == {
            "fetcher": {},
            "fetcher: data": {"fetch": 8, "collate": 8},
            "fetcher: collate_fn": {"sample": 23},
        }[what]
    )
    if workers:
        assert found["pickle"][0] == 8


def test_messages_of_a_worker(train):
    """Triples in the queue: their time is not that of batches as they are known."""
    run = train("""
    import multiprocessing.queues
    from leat.hooks import loaders
    class Triples(multiprocessing.queues.Queue):
        def put(self, message, *args):
            super().put((*message, "more"), *args)
        def get(self, *args, **kwargs):
            return super().get(*args, **kwargs)[:2]
    class Context(type(multiprocessing.get_context("fork"))):
        made = 0
        def Queue(self, most=0):
            self.made += 1
            return (Triples if self.made == 1 else multiprocessing.queues.Queue)(most, ctx=self)
    loader = DataLoader(Rows(23), batch_size=3, num_workers=1, multiprocessing_context=Context())
    print(sum(len(x) for x, y in loader))
    """)
    assert run.stdout == "23\n" and run.stderr == ""
    (worker,) = run.workers
    assert worker.header["missing"] == "data queue: messages"
    assert set(parts([worker])) == EVERYTHING - {"pickle"}
    assert set(parts([run.main])) == {"ready"}


def test_a_pin_loop_of_another_kind(train):
    run = train("""
    from leat.hooks import patch, workers
    def changed(source, target): return source, target
    loop = workers._make_pin_loop(changed)
    assert loop(1, target=2) == (1, 2) and loop(source=1, target=2) == (1, 2)
    assert patch._missing == ["_pin_memory_loop: in_queue"]
    """)
    assert run.stderr == ""


@pytest.mark.parametrize(
    "gone, missing",
    [
        ("worker._IterableDatasetStopIteration", "handover"),
        ("pin_memory.pin_memory", "pin_memory"),
        ("pin_memory._pin_memory_loop", "_pin_memory_loop"),
        ("worker._worker_loop", "worker._worker_loop"),
    ],
)
def test_points_that_are_not_there(train, gone, missing):
    """Installed once more, without one of them."""
    run = train(f"""
    from leat.hooks import loaders, patch, workers
    from torch.utils.data._utils import pin_memory, worker
    patch.remove()
    del {gone}
    workers.install(loaders.samples)
    assert patch._missing == [{missing!r}], patch._missing
    """)
    assert run.stderr == ""
