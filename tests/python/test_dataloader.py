"""leat.DataLoader beyond torch's: orders, ranks, its own arguments, plan() and stats()."""

import inspect
import os

import numpy
import pytest
import torch
from conftest import PACKAGE
from loader_kit import (
    ORDERS,
    Rows,
    Stream,
    leat,
    leat_data,
    numbers,
    over,
)
from receiver import samples
from torch.utils.data import Subset, TensorDataset

# ---- One epoch is the data.


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", (1, 7, 64, 1009))
def test_an_epoch_has_every_sample_once(order, count):
    loader = over(count, 8, order=order, seed=5)
    for _ in range(3):
        assert sorted(numbers(loader)) == list(range(count))
    assert len(loader) == len(list(loader)) == -(-count // 8)
    dropping = over(count, 8, order=order, seed=5, drop_last=True)
    seen = numbers(dropping)
    assert len(set(seen)) == len(seen) == count // 8 * 8
    assert len(dropping) == len(list(dropping)) == count // 8


def test_orders_shuffle_as_far_as_their_names_say():
    assert numbers(over(100, 8)) == list(range(100))
    assert numbers(over(100, 8, order="sequential")) == list(range(100))
    full = over(1000, 8, shuffle=True, seed=1)
    first, second = numbers(full), numbers(full)
    assert first != second and first != list(range(1000))
    window = numbers(over(10000, 8, order="window", seed=1))
    # A window has 4096 samples by default: no sample moves further.
    assert max(abs(place - i) for place, i in enumerate(window)) < 4096
    assert window != list(range(10000))


def test_seeds_and_epochs():
    assert numbers(over(99, 4, True, seed=3)) == numbers(over(99, 4, True, seed=3))
    assert numbers(over(99, 4, True, seed=3)) != numbers(over(99, 4, True, seed=4))
    one, other = over(99, 4, True, seed=3), over(99, 4, True, seed=3)
    numbers(one)
    other.set_epoch(1)
    assert numbers(one) == numbers(other)
    assert numbers(one) == numbers(other)  # the epochs continue


def test_without_a_seed_the_order_follows_torch_manual_seed():
    def two():
        torch.manual_seed(11)
        first, second = over(99, 4, True), over(99, 4, True)
        return numbers(first), numbers(second), numbers(first)

    once, again = two(), two()
    assert once == again
    # Two loaders give different orders, and so do two epochs.
    assert once[0] != once[1] and once[0] != once[2]


def test_order_torch_equals_the_order_of_torch():
    torch.manual_seed(2)
    expected = numbers(torch.utils.data.DataLoader(torch.arange(99), 4, True))
    torch.manual_seed(2)
    loader = over(99, 4, order="torch")
    assert loader.plan().runs_in_c
    assert numbers(loader) == expected


def test_a_subset_gives_only_its_samples():
    part = Subset(Subset(torch.arange(100), range(50, 100)), [3, 1, 4, 15, 9, 2, 6])
    expected = [53, 51, 54, 65, 59, 52, 56]
    assert numbers(leat.DataLoader(part, 3)) == expected
    for arguments in ({"order": "full"}, {"shuffle": True, "seed": 2}, {"order": "torch"}):
        loader = leat.DataLoader(part, 3, **arguments)
        assert loader.plan().runs_in_c and sorted(numbers(loader)) == sorted(expected)
    for order in ("quasi", "window"):
        with pytest.raises(ValueError, match="Subset"):
            list(leat.DataLoader(part, 3, order=order))


def test_persistent_workers_reuse_one_iterator():
    loader = over(99, 4, True, num_workers=1, persistent_workers=True)
    assert loader.plan().runs_in_c
    iterator = iter(loader)
    next(iterator)
    assert iter(loader) is iterator
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) == sorted(second) == list(range(99)) and first != second


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_does_not_depend_on_the_number_of_threads(order):
    x = torch.arange(5003)
    seen = [
        [
            batch.tolist()
            for batch in leat.DataLoader(x, 64, order=order, seed=9, num_threads=threads)
        ]
        for threads in (1, 2, 4, None)
    ]
    assert seen[0] == seen[1] == seen[2] == seen[3]


# ---- The face.


def test_plans():
    tensors = TensorDataset(torch.ones(5, 3), torch.ones(5))
    plan = leat.DataLoader(tensors, 2, True).plan()
    assert plan.runs_in_c and not plan.reasons and "float32[3], float32[]" in str(plan)
    for loader, reason in (
        (leat.DataLoader(tensors, collate_fn=list), "collate_fn is list"),
        (leat.DataLoader(tensors, None), "single samples"),
        (leat.DataLoader(Rows(5)), "Rows is a dataset with Python code of its own"),
        (leat.DataLoader(Stream()), "iterable"),
        (leat.DataLoader(torch.ones(5, requires_grad=True)), "requires a gradient"),
        (leat.DataLoader(torch.nn.Parameter(torch.ones(5))), "is a Parameter"),
        (leat.DataLoader(torch.eye(5).to_sparse()), "layout"),
        (leat.DataLoader(torch.ones(5, 0)), "empty"),
        (leat.DataLoader(numpy.array(["a", "b"])), "type <U1"),
        (leat.DataLoader(Subset(tensors, ["a"])), "Subset"),
    ):
        plan = loader.plan()
        assert not plan.runs_in_c and reason in str(plan), str(plan)
        assert all(where == "torch" for _, _, where in plan.rows)
    assert "rank 1 of 3" in str(over(9, 2, rank=1, world_size=3).plan())
    for options, order in (({}, "sequential"), ({"shuffle": True, "seed": 1}, "by the seed")):
        assert order in str(leat.DataLoader(Rows(9), **options).plan())
    assert "torch's" in str(leat.DataLoader(Rows(9), shuffle=True).plan())
    for dataset in (torch.arange(9), Rows(9)):
        given = leat.DataLoader(dataset, sampler=[1], seed=1, rank=0, world_size=2)
        assert "the given sampler's; seed= and rank= ignored" in str(given.plan())
        assert numbers(given) == [1]


def test_invalid_arguments():
    x = torch.ones(5)
    for wrong in (
        {"order": "random"},
        {"order": "full", "shuffle": False},
        {"order": "sequential", "shuffle": True},
        {"on_error": "ignore"},
        {"seed": -1},
        {"num_threads": 0},
        {"memory_budget": 0},
        {"rank": 0},
        {"world_size": 2},
        {"rank": 2, "world_size": 2},
        {"shard": "all"},
        {"shard": "auto", "rank": 0, "world_size": 2},
        {"shard": "auto", "order": "torch"},
        {"shard": "auto", "shuffle": True, "generator": torch.Generator()},
        {"seed": 1, "order": "torch"},
        {"seed": 1, "shuffle": True, "generator": torch.Generator()},
    ):
        with pytest.raises(ValueError):
            leat.DataLoader(x, **wrong)
    for wrong in ({"seed": 1.5}, {"num_threads": True}, {"memory_budget": "1GB"}):
        with pytest.raises(TypeError):
            leat.DataLoader(x, **wrong)
    with pytest.raises(RuntimeError, match="device"):
        leat.DataLoader(x, device="abacus")
    with pytest.raises(ValueError, match="iterable"):
        leat.DataLoader(Stream(), order="full")
    for ranks in ({"shard": "auto"}, {"rank": 0, "world_size": 2}):
        with pytest.raises(ValueError, match="ranks cannot share"):
            leat.DataLoader(Stream(), **ranks)


def test_a_framework_can_make_the_loader_again():
    """Lightning makes a new loader from the attributes named like the constructor's parameters."""
    loader = leat.DataLoader(
        torch.arange(20),
        4,
        order="full",
        seed=3,
        num_threads=2,
        memory_budget=1 << 20,
        device="cpu",
    )
    assert isinstance(loader, torch.utils.data.DataLoader)
    parameters = inspect.signature(type(loader).__init__).parameters
    given = {
        name: getattr(loader, name)
        for name in parameters
        if hasattr(loader, name) and name not in ("batch_sampler", "shuffle", "kwargs")
    }
    assert {
        "device",
        "order",
        "seed",
        "on_error",
        "num_threads",
        "memory_budget",
        "autotune",
    } < set(given)
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


def test_an_error_of_a_sampler_comes_after_the_batches_drawn_before_it():

    class Failing(list):
        def __iter__(self):
            yield from (1, 2, 3, 4, 5)
            raise OSError("no more indices")

    loader = leat.DataLoader(torch.arange(9), 2, sampler=Failing(), num_workers=1)
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == [[1, 2], [3, 4]]
    with pytest.raises(OSError, match="no more indices"):
        next(iterator)
    assert next(iterator, None) is None


def test_a_user_sampler_is_not_drawn_ahead():
    """As in torch, it may depend on what the training does between two batches."""
    asked = []

    class Watching(list):
        def __iter__(self):
            for index in range(8):
                asked.append(index)
                yield index

    loader = leat.DataLoader(torch.arange(9), 2, sampler=Watching())
    assert loader.plan().runs_in_c
    iterator = iter(loader)
    for number in range(4):
        assert next(iterator).tolist() == [2 * number, 2 * number + 1]
        assert len(asked) == 2 * number + 2


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


def test_leat_run_records_both_kinds_of_loader(train):
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
        assert fast.plan().runs_in_c
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
    assert first.own == second.own == 1  # also the one that runs through torch
    assert (first.engine_readable, second.engine_readable) == (1, 0)


def test_leat_run_records_whether_the_engine_can_read_the_dataset(train):
    """The engine is not imported for a user's own dataset, nor in a spawned worker."""
    run = train("""
        import sys
        from torch.utils.data import Subset, default_collate

        class Own(Rows):
            def __getitem__(self, i):
                x, y = super().__getitem__(i)
                return x, y, "leat._engine" in sys.modules

        class OwnTensors(TensorDataset):
            def __getitem__(self, i):
                return super().__getitem__(i)

        if __name__ == "__main__":
            x, y = torch.rand(12, 4), torch.zeros(12).long()
            readable = TensorDataset(x, y)
            for _, _, loaded in DataLoader(Own(12), batch_size=4):
                assert not loaded.any()
            for loader in (
                DataLoader(readable, batch_size=3),
                DataLoader(Subset(readable, [1, 2, 3]), batch_size=3),
                DataLoader(readable, batch_size=3, collate_fn=lambda samples: default_collate(samples)),
                DataLoader(readable, batch_size=None),
                DataLoader(OwnTensors(x, y), batch_size=3),
                DataLoader(TensorDataset(torch.rand(12, 4, requires_grad=True), y), batch_size=3),
                DataLoader(x.numpy(), batch_size=3),
            ):
                next(iter(loader))
            spawned = DataLoader(Own(12), batch_size=6, num_workers=1, multiprocessing_context="spawn")
            assert not any(loaded.any() for _, _, loaded in spawned)
    """)
    assert [loader.engine_readable for loader in run.main.loaders] == [0, 1, 1, 0, 0, 0, 0, 1, 0]


def test_autotune_is_off_when_num_threads_is_given():
    x = torch.arange(64)
    for given, adapts in (
        ({}, True),
        ({"num_threads": 2}, False),
        ({"num_threads": 2, "autotune": True}, True),
        ({"autotune": False}, False),
    ):
        loader = leat.DataLoader(x, 8, **given)
        assert loader.autotune is adapts
        threads = dict((row[0], row[1]) for row in loader.plan().rows)["threads"]
        assert ("adapted to the training" in threads) is adapts
        assert loader.stats().pace is None
        list(loader)
        stats = loader.stats()
        assert (stats.pace == "as it was asked for") is not adapts
        assert stats.pace in str(loader.plan()) and stats.pace in str(stats)
        assert stats.threads >= 1 and stats.ahead >= 1 and stats.pace_changes == 0
    with pytest.raises(TypeError):
        leat.DataLoader(x, 8, None, None, None, 0, None, False, False, 0, None, None, None, True)


# ---- Random state.


@pytest.mark.parametrize("workers", (0, 2))
@pytest.mark.parametrize("options", ({}, {"seed": 3}, {"order": "window"}, {"order": "torch"}))
@pytest.mark.parametrize(
    "dataset", (torch.arange(30), Rows(30), Subset(torch.arange(40), range(30)))
)
def test_shuffle_leaves_torchs_random_state_as_torchs_loader_does(dataset, options, workers):
    """After iter(), after each of two batches, and after each of two epochs."""
    order = options.get("order")
    if order == "window" and not isinstance(dataset, torch.Tensor):
        options = {}

    def states(kind, **options):
        torch.manual_seed(5)
        loader = kind(dataset, 8, True, num_workers=workers, **options)
        seen = []
        for _ in range(2):
            iterator = iter(loader)
            seen.append(torch.rand(1).item())
            for _ in range(2):
                next(iterator)
                seen.append(torch.rand(1).item())
            list(iterator)
            seen.append(torch.rand(1).item())
        return seen

    assert states(leat.DataLoader, **options) == states(torch.utils.data.DataLoader)


def test_a_generator_keeps_torchs_random_state():
    def after(kind, **options):
        torch.manual_seed(5)
        generator = torch.Generator().manual_seed(1)
        list(kind(torch.arange(30), 8, True, generator=generator, **options))
        return torch.rand(1).item()

    expected = after(torch.utils.data.DataLoader)
    assert after(leat.DataLoader) == after(leat.DataLoader, order="full") == expected
    assert after(leat.DataLoader, order="full", seed=1) == expected
