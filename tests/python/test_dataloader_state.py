"""leat.DataLoader.state_dict(): an epoch continues exactly where the state was saved."""

import functools
import json
import pickle

import pytest
import torch
from loader_kit import ORDERS, Rows, Stream, leat, numbers, over, repeated
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("saved_world", (1, 2))
def test_state_at_every_batch(order, saved_world):
    """Saved after any batch, loaded with other threads, ranks and batch sizes: what is left comes
    exactly once, but for the samples that are repeated for the last batches of ranks."""
    count = 61

    def make(rank, world, size, threads):
        return over(
            count, size, order=order, seed=4, num_threads=threads, rank=rank, world_size=world
        )

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
            left = set(range(count)) - set(had)
            assert set(rest) >= left, (stop, world)
            assert len(rest) == len(left) + repeated(len(left), size, world), (stop, world)


def test_a_state_continues_in_the_same_order():
    whole = over(61, 4, True, seed=4)
    numbers(whole)
    expected = numbers(whole)
    half = over(61, 4, True, seed=4)
    numbers(half)
    iterator = iter(half)
    head = [i for _ in range(5) for i in next(iterator).tolist()]
    state = half.state_dict()
    resumed = over(61, 4, True, seed=77)  # the state has the seed
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert head + numbers(resumed) == expected
    assert resumed.state_dict()["epoch"] == 2


@pytest.mark.parametrize("order", ORDERS)
def test_a_state_is_small_and_of_constant_size(tmp_path, order):
    """However much there is and wherever it stands, what is saved grows by the digits of its
    numbers alone: pickle and JSON write a large one with some bytes more than a small one."""
    sizes, texts = [], []
    path = tmp_path / "state"
    for count, step in ((40, 1), (100000, 1000)):
        loader = over(count, 8, order=order, seed=1)
        for number, _ in enumerate(loader):
            if number % step == 0:
                torch.save(loader.state_dict(), path)
                assert torch.load(path, weights_only=True) == loader.state_dict()
                sizes.append(len(pickle.dumps(loader.state_dict())))
                texts.append(len(json.dumps(loader.state_dict())))
    assert len(sizes) == 5 + 13 and max(texts) < 300
    assert max(sizes) - min(sizes) <= 32 and max(texts) - min(texts) <= 32


def test_the_state_of_an_interrupted_pass():
    """Also after its engine was used for another pass."""
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
    """The state has the number of batches and the states of the generators."""
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
        assert len(numbers(resumed)) == 23  # the next epoch is complete


def test_invalid_states():
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


def saved_after(loader, batches):
    iterator = iter(loader)
    head = [i for _ in range(batches) for i in next(iterator).tolist()]
    return head, pickle.loads(pickle.dumps(loader.state_dict()))


class OwnBatches(BatchSampler):
    """It may make batches of anything: leat cannot count the samples."""


MAKERS = {
    "sequential": lambda kind, size: kind(Rows(23), size),
    "shuffle": lambda kind, size: kind(Rows(23), size, True),
    "generator": lambda kind, size: kind(
        Rows(23), size, True, generator=torch.Generator().manual_seed(5)
    ),
    "sampler": lambda kind, size: kind(Rows(23), size, sampler=list(range(22, -1, -1))),
    "weighted": lambda kind, size: kind(
        Rows(23), size, sampler=WeightedRandomSampler([1.0] * 23, 23)
    ),
    "distributed": lambda kind, size: kind(
        Rows(23), size, sampler=DistributedSampler(range(23), 2, 1, seed=3)
    ),
    "batch_sampler": lambda kind, size: kind(
        Rows(23), batch_sampler=BatchSampler(RandomSampler(range(23)), size, False)
    ),
    "subset": lambda kind, size: kind(Subset(torch.arange(40), range(10, 33)), size, True),
    "drop_last": lambda kind, size: kind(Rows(23), size, True, drop_last=True),
}


def the_way_of_torch(kind, size):
    """leat's engine has another permutation: a Subset is asked for torch's."""
    options = {} if kind is torch.utils.data.DataLoader else {"order": "torch"}
    return kind(torch.arange(23), size, True, **options)


MAKERS["engine in torch's order"] = the_way_of_torch


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("workers", (0, 2))
def test_another_batch_size_continues_torchs_order(name, workers):
    """The samples after the saved ones are those of torch's loader."""
    if workers and name not in ("shuffle", "distributed"):
        return

    def make(kind, size):
        return MAKERS[name](functools.partial(kind, num_workers=workers) if workers else kind, size)

    torch.manual_seed(1)
    expected = numbers(make(torch.utils.data.DataLoader, 1))
    for stop in (1, 2):
        for size in (2, 3, 4, 7):
            torch.manual_seed(1)
            head, state = saved_after(make(leat.DataLoader, 4), stop)
            assert head == expected[: 4 * stop] and state["samples"] == 4 * stop
            torch.manual_seed(99)
            resumed = make(leat.DataLoader, size)
            resumed.load_state_dict(state)
            rest = expected[4 * stop :]
            if name == "drop_last":
                rest = rest[: len(rest) // size * size]
            half, again = saved_after(resumed, 1)
            assert half == rest[:size]
            assert again["samples"] == 4 * stop + len(half)
            last = make(leat.DataLoader, 1)
            last.load_state_dict(again)
            left = expected[4 * stop + size :]
            assert numbers(last) == left


@pytest.mark.parametrize("dataset", (Rows(61), Subset(Rows(80), range(61))))
@pytest.mark.parametrize("shuffle", (False, True))
def test_python_datasets_continue_with_another_world_size(dataset, shuffle):
    """A seeded order, or that of the data, has a position, as in the engine."""
    seed = 4 if shuffle else None

    def make(rank, world, size, seed=seed):
        ranks = {} if world == 1 else {"rank": rank, "world_size": world}
        return leat.DataLoader(dataset, size, shuffle, seed=seed, **ranks)

    for saved_world in (1, 2):
        for stop in (1, 3, 7):
            saved = [saved_after(make(rank, saved_world, 4), stop) for rank in range(saved_world)]
            had = [i for head, _ in saved for i in head]
            for world, size in ((1, 4), (1, 3), (2, 4), (3, 5)):
                rest = []
                for rank in range(world):
                    resumed = make(rank, world, size, 77 if shuffle else None)  # the state's counts
                    resumed.load_state_dict(saved[0][1])
                    assert resumed.state_dict() == saved[0][1]
                    rest += numbers(resumed)
                left = set(range(61)) - set(had)
                assert set(rest) >= left
                assert len(rest) == len(left) + repeated(len(left), size, world)


def test_the_epoch_of_a_distributed_sampler_is_restored():
    def make(kind):
        return kind(Rows(40), 4, sampler=DistributedSampler(range(40), 2, 0, seed=3))

    theirs = make(torch.utils.data.DataLoader)
    theirs.sampler.set_epoch(3)
    saving = make(leat.DataLoader)
    saving.sampler.set_epoch(3)
    head, state = saved_after(saving, 2)
    resumed = make(leat.DataLoader)
    resumed.load_state_dict(state)
    assert head + numbers(resumed) == numbers(theirs)
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(4)
    with pytest.raises(ValueError, match="epoch 3 of the sampler"):
        numbers(resumed)
    resumed.sampler.set_epoch(3)
    assert head + numbers(resumed) == numbers(theirs)
    resumed.load_state_dict(state)
    resumed.set_epoch(4)
    theirs.sampler.set_epoch(4)
    assert numbers(resumed) == numbers(theirs)


REFUSED = {
    "length": (lambda: leat.DataLoader(Rows(62), 4, True), "61 samples in the dataset"),
    "order": (lambda: leat.DataLoader(Rows(61), 4), "RandomSampler"),
    "seed": (lambda: leat.DataLoader(Rows(61), 4, True, seed=1), "RandomSampler"),
    "shard": (lambda: leat.DataLoader(Rows(61), 4, True, rank=0, world_size=2), "RandomSampler"),
    "sampler": (
        lambda: leat.DataLoader(Rows(61), 4, sampler=RandomSampler(range(40))),
        "61 entries in the sampler",
    ),
    "iterable": (lambda: leat.DataLoader(Stream(), 4), "RandomSampler"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_cannot_be_continued_is_refused(name):
    _, state = saved_after(leat.DataLoader(Rows(61), 4, True), 2)
    make, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        make().load_state_dict(state)


def test_a_generator_must_be_given_again():
    generator = torch.Generator().manual_seed(5)
    _, state = saved_after(leat.DataLoader(Rows(61), 4, True, generator=generator), 2)
    resumed = leat.DataLoader(Rows(61), 4, True)
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="generator"):
        numbers(resumed)


def test_ranks_of_a_sampler_must_be_the_same():
    def make(replicas):
        return leat.DataLoader(
            Rows(60), 4, sampler=DistributedSampler(range(60), replicas, 0, drop_last=True)
        )

    _, state = saved_after(make(2), 2)
    with pytest.raises(ValueError, match="ranks in the sampler"):
        make(3).load_state_dict(state)


def test_batches_of_an_own_batch_sampler_cannot_be_cut():
    def make(size):
        return leat.DataLoader(Rows(61), batch_sampler=OwnBatches(range(61), size, False))

    head, state = saved_after(make(4), 2)
    same = make(4)
    same.load_state_dict(state)
    assert head + numbers(same) == list(range(61))
    with pytest.raises(ValueError, match="batch of the batch_sampler"):
        make(2).load_state_dict(state)


@pytest.mark.parametrize("options", ({"batch_size": 2}, {"batch_size": 4, "num_workers": 1}))
def test_an_iterable_dataset_continues_only_with_the_same_batches(options):
    _, state = saved_after(leat.DataLoader(Stream(), 4, num_workers=2), 2)
    with pytest.raises(ValueError, match="samples in a batch|workers"):
        leat.DataLoader(Stream(), **options).load_state_dict(state)
