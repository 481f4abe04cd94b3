"""A torch that differs from what the hooks expect: what cannot be measured is reported as missing, the
rest is counted, and the training is not affected. Each test changes torch before leat sees it."""

import os

import pytest
import torch
from conftest import PACKAGE
from test_worker_view import parts

EVERYTHING = {"sample", "fetch", "collate", "pickle", "idle"}


@pytest.fixture
def train_with(train, tmp_path):
    """train_with(change, script): torch's import ends with `change`, and leat's hooks come after it."""

    def run(change, script):
        package = tmp_path / "changed" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            f"__path__ = [{os.path.dirname(torch.__file__)!r}]\n"
            f"__file__ = {torch.__file__!r}\n"
            "exec(compile(open(__file__).read(), __file__, 'exec'))\n"
            "from torch.utils.data import dataloader\n"
            "from torch.utils.data._utils import fetch, pin_memory, worker\n" + change
        )
        path = os.pathsep.join([os.path.join(PACKAGE, "_inject"), str(tmp_path / "changed")])
        return train(script, PYTHONPATH=path)

    return run


# A _worker_loop whose parameters are in reverse order, with other names for some or without names.
CHANGED_LOOP = """
import inspect
plain_loop = worker._worker_loop
names = list(inspect.signature(plain_loop).parameters)
theirs = [{renamed!r}.get(name, name) for name in names]
made = {{"plain": plain_loop}}
if {anonymous}:
    made["changed"] = lambda *args: plain_loop(*args[::-1])
else:
    exec(f"def changed({{', '.join(theirs[::-1])}}): return plain({{', '.join(theirs)}})", made)
worker._worker_loop = made["changed"]
"""

SLOW_ROWS = """
import time
class Slow(Rows):
    def __getitem__(self, i):
        time.sleep(0.001)  # of faster samples only some are measured
        return super().__getitem__(i)
"""

LOOP = (
    SLOW_ROWS
    + """
from torch.utils.data._utils import worker
loop = worker._worker_loop
worker._worker_loop = lambda *args: loop(*args[::-1])  # torch passes them in its own order
print(sum(len(x) for x, y in DataLoader(Slow(23), batch_size=3, num_workers=2)))
"""
)


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
def test_parameters_of_the_worker_loop(train_with, unknown, lost):
    change = CHANGED_LOOP.format(
        renamed={name: "other_" + name for name in unknown}, anonymous=len(unknown) == 3
    )
    run = train_with(change, LOOP)
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
        expected = {"_worker_loop: " + name for name in unknown}
        if unknown == ["dataset"]:  # the worker sends batches but has no timed fetcher
            expected.add("fetcher")
        assert set(missing) == expected
        assert process.header["worker_loader"] == 0 and process.header["signals"] & 32
        ids = {r.id for r in process.of("worker_fetch")}
        assert ids == (set() if "fetch" in lost else {process.header["worker_id"] & 0xFFFFFFFF})
    assert run.main.header["missing"] == ""
    main = parts([run.main])
    assert main["unpickle"][0] == sum(run.main.ready().values()) == 8


LISTS = """
class Lists(dict):
    def __setitem__(self, number, task):
        super().__setitem__(number, list(task))
"""

PADDED = """
class Padded(tuple):  # has an item for the batch from the beginning
    def __len__(self): return 1
    def __add__(self, batch): return (self[0], *batch)

class PaddedTasks(dict):
    def __setitem__(self, number, task):
        super().__setitem__(number, Padded((*task, None)) if len(task) == 1 else task)
"""

TASKS = """
def get(self): return self.__dict__["_tasks"]
def put(self, tasks): self.__dict__["_tasks"] = {kind}(tasks)
dataloader._MultiProcessingDataLoaderIter._task_info = property(get, put)
"""

READ_ALL = """
loader = DataLoader(Rows(23), batch_size=3, num_workers=2)
print(sum(len(x) for x, y in loader))
"""

CHANGED_LATER = (
    LISTS
    + """
batches = iter(DataLoader(Rows(23), batch_size=3, num_workers=2))
tasks = Lists()
for number, task in batches._task_info.items():
    tasks[number] = task
batches._task_info = tasks
print(sum(len(x) for x, y in batches))
"""
)


@pytest.mark.parametrize(
    "change, script",
    [
        (LISTS + TASKS.format(kind="Lists"), READ_ALL),
        (PADDED + TASKS.format(kind="PaddedTasks"), READ_ALL),
        ("", CHANGED_LATER),
    ],
    ids=["lists", "padded", "lists, after the iterator was made"],
)
def test_tasks_of_an_iterator(train_with, change, script):
    """Tasks that work for torch like its own tuples."""
    run = train_with(change, script)
    assert run.stdout == "23\n" and run.stderr == ""
    assert run.main.header["missing"] == "_task_info"
    main = parts([run.main])
    assert set(main) == {"unpickle"} and main["unpickle"][0] == 8
    assert set(parts(run.workers)) == EVERYTHING


OTHER_ITERATOR = """
import queue
from torch.utils.data import dataloader
class Other(dataloader._BaseDataLoaderIter):
    def __init__(self, loader):
        super().__init__(loader)
        {attributes}
    def _next_data(self):
        return torch.stack([self._dataset[i][0] for i in self._next_index()])
class Loader(DataLoader):
    def _get_iterator(self): return Other(self)
print(sum(len(x) for x in Loader(Rows(23), batch_size=3, num_workers={workers})))
"""
QUEUE = "self._data_queue = queue.Queue()"


@pytest.mark.parametrize(
    "workers, attributes, missing",
    [
        (0, "pass", ""),
        (2, "pass", "_data_queue"),
        (2, QUEUE, "_task_info"),
        (2, QUEUE + "; self._task_info = {0: (1, 2)}", "_task_info"),
        (2, QUEUE + "; self._task_info = {}", ""),
        (2, QUEUE + "; self._task_info = {}; self._pin_memory_thread = 1", "_worker_result_queue"),
    ],
)
def test_an_iterator_of_another_kind(train, workers, attributes, missing):
    run = train(OTHER_ITERATOR.format(workers=workers, attributes=attributes))
    assert run.stdout == "23\n" and run.stderr == ""
    assert run.main.header["missing"] == missing
    assert len(run.main.batches()) == 8
    assert bool(run.main.ready()) == ("= {}" in attributes)


# Each removes one thing from the fetchers, and works for torch as before.
FETCHERS = {
    "fetcher": """
class Other(fetch._MapDatasetFetcher): pass
fetch._MapDatasetFetcher = lambda *args: Other(*args)
""",
    "fetcher: data": """
class Fixed(fetch._MapDatasetFetcher):
    dataset = property(lambda self: self.data, lambda self, value: setattr(self, "data", value)
                       if not hasattr(self, "data") else 1 / 0)
fetch._MapDatasetFetcher = Fixed
""",
    "fetcher: collate_fn": """
class Own(fetch._MapDatasetFetcher):
    def fetch(self, rows):
        return torch.utils.data.default_collate([self.dataset[i] for i in rows])
import torch
fetch._MapDatasetFetcher = Own
""",
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("what", FETCHERS)
def test_fetchers(train_with, what, workers):
    run = train_with(
        FETCHERS[what],
        SLOW_ROWS
        + f"print(sum(len(x) for x, y in DataLoader(Slow(23), batch_size=3, num_workers={workers})))",
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
    """A queue with triples: they are not recognised as batches."""
    run = train("""
    import multiprocessing.queues
    class Triples(multiprocessing.queues.Queue):
        def put(self, message, *args):
            super().put((*message, "more"), *args)
        def get(self, *args, **kwargs):
            return super().get(*args, **kwargs)[:2]
    class Context(type(multiprocessing.get_context("fork"))):
        made = 0
        def Queue(self, maxsize=0):
            self.made += 1
            return (Triples if self.made == 1 else multiprocessing.queues.Queue)(maxsize, ctx=self)
    loader = DataLoader(Rows(23), batch_size=3, num_workers=1, multiprocessing_context=Context())
    print(sum(len(x) for x, y in loader))
    """)
    assert run.stdout == "23\n" and run.stderr == ""
    (worker,) = run.workers
    assert worker.header["missing"] == "data queue: messages"
    assert set(parts([worker])) == EVERYTHING - {"pickle"}
    assert set(parts([run.main])) == set() and run.main.ready()


def test_a_pin_loop_with_other_parameters(train_with):
    run = train_with(
        """
def changed(source, target): return source, target
pin_memory._pin_memory_loop = changed
""",
        """
from torch.utils.data._utils import pin_memory
loop = pin_memory._pin_memory_loop
assert loop(1, target=2) == (1, 2) and loop(source=1, target=2) == (1, 2)
list(DataLoader(Rows(3)))
""",
    )
    assert run.stderr == "" and run.main.header["missing"] == "_pin_memory_loop: in_queue"


@pytest.mark.parametrize(
    "removed, missing",
    [
        ("worker._IterableDatasetStopIteration", "queues"),
        ("pin_memory.pin_memory", "pin_memory"),
        ("pin_memory._pin_memory_loop", "_pin_memory_loop"),
        ("worker._worker_loop", "worker._worker_loop"),
    ],
)
def test_a_removed_patch_point(train_with, removed, missing):
    run = train_with(f"del {removed}", "list(DataLoader(Rows(23), batch_size=3))")
    assert run.stderr == "" and run.main.header["missing"] == missing
    assert len(run.main.batches()) == 8
