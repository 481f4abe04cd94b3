"""DataLoader: every batch is counted once, with its loader, its epoch and its samples."""

import pytest
from receiver import END, ERROR, NOGRAD, iteration, samples

LOOP = """
if __name__ == "__main__":
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader({data}, batch_size=3, {options})
    for epoch in range({epochs}):
        for x, y in loader:
            loss_of(model, x, y).backward()
            opt.step()
            opt.zero_grad()
"""


def test_single_process(train):
    run = train(LOOP.format(data="Rows(302)", options="", epochs=2))
    main = run.main
    assert len(main.batches()) == 2 * 101
    assert len(main.of("backward")) == len(main.of("optimizer")) == 2 * 101
    assert len(main.of("fetch")) == 2 * 102 and len([r for r in main.of("fetch") if r.flags]) == 2
    assert all(r.flags == END for r in main.of("fetch") if r.flags)
    assert len(main.of("iter")) == 2
    assert sorted({iteration(r) for r in main.batches()}) == [1, 2]
    assert sum(map(samples, main.batches())) == 2 * 302
    assert main.of("worker_fetch") == []
    (loader,) = main.loaders
    assert loader.dataset == "Rows" and loader.length == 302 and loader.batch_size == 3
    assert loader.num_workers == 0 and loader.iterable == 0 and loader.persistent_workers == 0
    assert loader.where.startswith("script.py:") and loader.own == 0
    header = main.header
    assert header["signals"] & 7 == 7 and header["cost_ns"] > 0 and header["closed"] == 1
    assert header["missing"] == "" and header["threads_lost"] == 0
    assert header["torch"] and header["python"].startswith("3.")
    assert run.stdout == run.stderr == ""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers(train, method):
    run = train(
        LOOP.format(
            data="Rows(302)",
            options=f"num_workers=2, prefetch_factor=4, multiprocessing_context='{method}'",
            epochs=1,
        )
    )
    assert len(run.main.batches()) == 101
    assert sum(map(samples, run.main.batches())) == 302
    assert [p.header["worker_id"] for p in run.workers] == [0, 1]
    assert sum(len(p.of("worker_fetch")) for p in run.workers) == 101
    assert sum(samples(r) for p in run.workers for r in p.of("worker_fetch")) == 302
    for number, process in enumerate(run.workers):
        assert {r.id for r in process.records} == {number}
        assert {r.kind for r in process.records} == {"worker_fetch"}
        assert process.header["signals"] & 32 and process.header["torch"]
    assert run.main.of("worker_fetch") == []
    (loader,) = run.main.loaders
    assert loader.num_workers == 2 and loader.prefetch_factor == 4


def test_persistent_workers_have_a_new_iteration_each_epoch(train):
    options = "num_workers=2, persistent_workers=True"
    run = train(LOOP.format(data="Rows(41)", options=options, epochs=3))
    batches = run.main.batches()
    assert [sum(iteration(r) == i for r in batches) for i in (1, 2, 3)] == [14, 14, 14]
    assert len(run.main.of("iter")) == 3 and len(run.workers) == 2
    assert sum(len(p.of("worker_fetch")) for p in run.workers) == 3 * 14
    assert run.main.loaders[0].persistent_workers == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable(train, workers):
    run = train(f"""
    class Stream(IterableDataset):
        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            for i in range(info.id if info else 0, 101, info.num_workers if info else 1):
                yield torch.zeros(4), 0

    n = 0
    for x, y in DataLoader(Stream(), batch_size=5, num_workers={workers}):
        n += 1
    print(n)
    """)
    assert len(run.main.batches()) == int(run.stdout)
    assert sum(map(samples, run.main.batches())) == 101
    assert sum(len(p.of("worker_fetch")) for p in run.workers) == (21 if workers else 0)
    (loader,) = run.main.loaders
    assert loader.iterable == 1 and loader.length == -1


def test_several_loaders_evaluation_and_early_break(train):
    run = train("""
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = DataLoader(Rows(46), batch_size=2)
    eval_loader = DataLoader(Rows(14), batch_size=2)
    for epoch in range(2):
        for i, (x, y) in enumerate(train_loader):
            loss_of(model, x, y).backward()
            opt.step()
            if epoch == 1 and i == 4:
                break
        with torch.no_grad():
            for x, y in eval_loader:
                model(x)
    """)
    batches = run.main.batches()
    assert [sum(r.id == i for r in batches) for i in (0, 1)] == [23 + 5, 2 * 7]
    assert all(bool(r.flags & NOGRAD) == (r.id == 1) for r in batches)
    assert len(run.main.of("optimizer")) == 28
    assert len([r for r in run.main.of("fetch") if r.flags & END]) == 3
    assert [i.length for i in run.main.loaders] == [46, 14]


def test_a_loader_made_in_each_epoch_has_one_id(train):
    run = train("""
    for epoch in range(97):
        for batch in DataLoader(Rows(2)):
            pass
    both = [DataLoader(Rows(2)) for _ in range(2)]
    for loader in both:
        list(loader)
    """)
    assert len(run.main.loaders) == 3
    assert len(run.main.batches()) == 97 * 2 + 4
    assert len({iteration(r) for r in run.main.batches()}) == 99


def test_a_loader_made_again_while_the_old_one_is_kept(train):
    """Frameworks keep the loaders that they made for each evaluation."""
    run = train("""
    kept = []
    def make(rows):
        kept.append(DataLoader(rows))
        return kept[-1]
    rows = Rows(2)
    for epoch in range(97):
        for batch in make(rows):
            pass
    for batch in make(rows):  # for another purpose
        pass
    for data in Rows(2), Rows(2):  # over other data
        list(make(data))
    for pair in zip(*[make(rows) for _ in range(2)]):  # at the same time
        pass
    """)
    assert len(run.main.loaders) == 1 + 1 + 2 + 2
    assert len({r.id for r in run.main.batches()[: 97 * 2]}) == 1
    assert len(run.main.batches()) == 97 * 2 + 2 + 4 + 4


def test_call_site_of_a_loader(train, tmp_path):
    """Also if a framework makes the loader; for a training that is a package, a line of it."""
    package = tmp_path / "lib" / "site-packages" / "framework.py"
    package.parent.mkdir(parents=True)
    package.write_text(
        "from torch.utils.data import DataLoader\n"
        "def fit(rows):\n"
        "    return list(DataLoader(rows))\n"
    )
    run = train("""
    import sys, threading
    sys.path.insert(0, "lib/site-packages")
    from framework import fit
    fit(Rows(2))
    thread = threading.Thread(target=fit, args=(Rows(3),))
    thread.start()
    thread.join()
    """)
    ours, theirs = run.main.loaders
    assert ours.where.startswith("script.py:")
    assert theirs.where.endswith("lib/site-packages/framework.py:3")


def test_batch_sampler_and_shapes(train):
    run = train("""
    from torch.utils.data import BatchSampler, SequentialSampler
    rows = Rows(14)
    sampler = BatchSampler(SequentialSampler(rows), 7, False)
    list(DataLoader(rows, batch_sampler=sampler))
    images = lambda items: ([torch.zeros(3, 8, 8) for _ in items], [{} for _ in items])
    list(DataLoader(rows, batch_size=7, collate_fn=images))
    words = lambda items: ["word" for _ in items]
    list(DataLoader(rows, batch_size=7, collate_fn=words))
    table = lambda items: {"x": torch.zeros(len(items), 2), "y": 1}
    list(DataLoader(rows, batch_size=7, collate_fn=table))
    nothing = lambda items: None
    list(DataLoader(rows, batch_size=7, collate_fn=nothing))
    """)
    assert [i.batch_size for i in run.main.loaders] == [7] * 5
    assert [samples(r) for r in run.main.batches()] == [7] * 8 + [0] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_in_the_dataset(train, workers):
    run = train(
        f"""
    class Broken(Rows):
        def __getitem__(self, i):
            if i == 22:
                raise ValueError("row 22 is bad")
            return super().__getitem__(i)

    for x, y in DataLoader(Broken(40), num_workers={workers}):
        pass
    """,
        fails=True,
    )
    assert run.returncode == 1 and "row 22 is bad" in run.stderr
    assert len(run.main.batches()) == 22
    assert [r.flags for r in run.main.of("fetch") if r.flags] == [ERROR]
    assert run.main.header["exception"].startswith("ValueError: ")
    assert "script.py:" in run.main.header["exception"]
    assert run.main.header["closed"] == 1


def test_interrupt_in_a_fetch(train):
    run = train("""
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" has it ignored
    class Slow(Rows):
        def __getitem__(self, i):
            if i == 5:
                signal.raise_signal(signal.SIGINT)
            return super().__getitem__(i)

    try:
        for x, y in DataLoader(Slow(9)):
            pass
    except KeyboardInterrupt:
        for x, y in DataLoader(Rows(7)):
            pass
    """)
    assert len(run.main.batches()) == 5 + 7
    assert [r.flags for r in run.main.of("fetch") if r.flags] == [ERROR, END]


def test_loader_in_a_background_thread(train):
    run = train("""
    import queue, threading, time
    assert threading.Condition.wait.__code__.co_filename == threading.__file__
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    q = queue.Queue(2)
    class Slow(Rows):
        def __getitem__(self, i):
            time.sleep(0.02)
            return super().__getitem__(i)
    def feed():
        for batch in DataLoader(Slow(46), batch_size=2):
            q.put(batch)
        q.put(None)
    threading.Thread(target=feed).start()
    while (batch := q.get()) is not None:
        loss_of(model, *batch).backward()
        opt.step()
    assert "wait" in vars(q.not_empty) and "wait" not in vars(queue.Queue().not_empty)
    """)
    main = run.main
    fetching = {r.tid for r in main.batches()}
    training = {r.tid for r in main.of("optimizer")}
    assert len(main.batches()) == len(main.of("optimizer")) == 23
    assert len(fetching) == len(training) == 1 and fetching != training
    waits = [r for r in main.of("wait") if r.tid in training]
    assert len(waits) >= 15 and all(r.t1 - r.t0 >= 20_000 for r in waits)


def test_generators_and_nested_loaders(train):
    run = train("""
    class Nested(IterableDataset):
        def __iter__(self):
            for batch in DataLoader(Rows(10), batch_size=2):
                yield batch[0][0]
    def pairs(loader):
        it = iter(loader)
        for a in it:
            yield a, next(it, None)
    n = sum(1 for _ in pairs(DataLoader(Rows(22), batch_size=1)))
    m = sum(1 for _ in DataLoader(Nested(), batch_size=1))
    print(n, m)
    it = DataLoader(Rows(5))._get_iterator()
    list(it)
    """)
    assert run.stdout == "11 5\n"
    assert [sum(iteration(r) == i for r in run.main.batches()) for i in (1, 2, 3)] == [22, 5, 5]


def test_num_workers_of_engine_loaders(train):
    """Unknown if the engine makes the batches; the given number if torch does."""
    run = train(
        """
import leat
for _ in leat.DataLoader(TensorDataset(torch.zeros(40, 2)), batch_size=4): pass
for _ in leat.DataLoader(Rows(40), batch_size=4): pass
"""
    )
    assert [loader.num_workers for loader in run.main.loaders] == [-1, 0]


def test_names_of_datasets(train):
    """leat's own classes and classes of the script with the same name."""
    run = train(
        """
import leat
class Tensors(Rows): pass
Nameless = type("Nameless", (Rows,), {"__module__": None})
data = torch.zeros(8, 2)
for dataset in (leat.data.Tensors(data), Tensors(8), TensorDataset(data), data, Nameless(8)):
    for _ in DataLoader(dataset, batch_size=4): pass
"""
    )
    names = [loader.dataset for loader in run.main.loaders]
    assert names == ["leat.data.Tensors", "Tensors", "TensorDataset", "Tensor", "Nameless"]


def test_stages_of_engines_equal_stats(train):
    """What is recorded equals stats(), over several engines of a loader."""
    run = train(
        """
import leat
data = TensorDataset(torch.arange(404 * 8.0).reshape(404, 8))
loader = leat.DataLoader(data, batch_size=4, shuffle=True, num_threads=2)
for _ in range(3):
    for _ in loader: pass
first, second = iter(loader), iter(loader)
for _ in range(5): next(first), next(second)
del first, second
stats = loader.stats()
print(stats.batches, stats.samples, stats.bytes, stats.waits)
for _ in leat.DataLoader(Rows(40), batch_size=4): pass
"""
    )
    engine = run.main.engines[0]
    told = engine.batches, engine.samples, engine.bytes, engine.waits
    assert told == tuple(map(int, run.stdout.split()))
    assert told[:3] == (313, 1252, 1252 * 32)
    assert (engine.threads, engine.order) == (2, "full")
    assert engine.read_ns > 0 and engine.order_ns > 0 and engine.layout_ns == 0
    assert engine.help_ns <= engine.wait_ns
    assert list(run.main.engines) == [0]  # the other loader's batches are made by torch


def test_stage_times_equal_stats(train):
    """Equal to the nanosecond, when no batch is being made."""
    run = train(
        """
import leat
loader = leat.DataLoader(torch.arange(9000.0).reshape(900, 10), batch_size=4, shuffle=True, num_threads=2)
for _ in range(2):
    for _ in loader: pass
stats = loader.stats()
for seconds in (stats.order_s, stats.read_s, stats.layout_s, stats.wait_s, stats.help_s):
    print(round(seconds * 1e9))
"""
    )
    engine = run.main.engines[0]
    told = engine.order_ns, engine.read_ns, engine.layout_ns, engine.wait_ns, engine.help_ns
    assert told == tuple(map(int, run.stdout.split()))
    assert engine.order_ns > 0 and engine.read_ns > 0  # a fast engine is never waited for


def test_counts_of_batches_of_different_sizes(train):
    """The last batch, batches of samplers, collate functions and datasets that give fewer samples."""
    run = train("""
    import time
    from torch.utils.data import RandomSampler, SequentialSampler

    class Bad(Rows):
        def __getitem__(self, i):
            if i == 5:
                raise ValueError("row 5")
            return super().__getitem__(i)

    class Slow(Rows):
        def __getitem__(self, i):
            if i < 4:
                time.sleep(0.5)
            return super().__getitem__(i)

    class Fewer(SequentialSampler):
        def __iter__(self):
            return iter(range(6))  # of 25 by its __len__

    class FewerRows(Rows):
        def __getitems__(self, indices):
            return [self[i] for i in indices[::2]]

    def half(rows):
        return torch.utils.data.default_collate(rows[::2])

    batches = iter(DataLoader(Bad(25), batch_size=4))  # 4, the failure, 4 times 4, 1
    while True:
        try:
            next(batches)
        except ValueError:
            pass
        except StopIteration:
            break
    for _ in DataLoader(Rows(25), batch_size=4, collate_fn=half): pass  # 6 times 2, 1
    drawn = RandomSampler(Rows(25), replacement=True, num_samples=10)
    for _ in DataLoader(Rows(25), batch_size=4, sampler=drawn): pass  # 4, 4, 2
    for _ in DataLoader(Rows(25), batch_size=4, sampler=Fewer(Rows(25))): pass  # 4, 2
    for _ in DataLoader(FewerRows(25), batch_size=4): pass  # 6 times 2, 1
    order = {"in_order": False} if hasattr(DataLoader(Rows(1)), "in_order") else None  # from torch 2.6
    if order:
        for _ in DataLoader(Slow(5), batch_size=4, num_workers=2, **order): pass  # 1, 4
    """)
    counts = {}
    for batch in run.main.batches():
        counts.setdefault(batch.id, []).append(samples(batch))
    failed, halves, drawn, fewer, rows = list(counts.values())[:5]
    assert failed == [4, 4, 4, 4, 4, 1]
    assert halves == [2] * 6 + [1]
    assert drawn == [4, 4, 2]
    assert fewer == [4, 2]
    assert rows == [2] * 6 + [1]
    for unordered in list(counts.values())[5:]:
        assert unordered == [1, 4]


def test_an_iterator_at_the_address_of_a_deleted_one(train):
    run = train("""
    loaders = [DataLoader(Rows(n), batch_size=4) for n in (8, 10, 15)]
    for i in range(30):
        for batch in loaders[i % 3]:
            break
        for batch in loaders[i % 3]:
            pass
    for _ in range(3):  # the one is asked while the other lives
        for one, other in zip(loaders[1], loaders[2]):
            pass
    """)
    fetches = run.main.of("fetch")
    sizes = {0: 8, 1: 10, 2: 15}
    whole = {}
    for r in fetches:
        whole.setdefault((r.id, r.arg >> 32), []).append(r.arg & 0xFFFFFFFF)
    assert len(whole) == 60 + 6
    for (loader, _), counts in whole.items():
        batches = [min(4, sizes[loader] - at) for at in range(0, sizes[loader], 4)]
        assert counts == [*batches, 0][: len(counts)], (loader, counts)


def test_call_site_of_leats_own_loader(train):
    """The user's line, not one of leat's package."""
    run = train("""
    import leat
    for batch in leat.DataLoader(Rows(4), batch_size=2): pass
    """)
    (loader,) = run.main.loaders
    assert loader.where.startswith("script.py:")
