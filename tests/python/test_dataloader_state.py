"""leat.DataLoader.state_dict(): an epoch continues exactly where the state was saved."""

import json
import pickle

import pytest
import torch
from loader_kit import ORDERS, Rows, Stream, leat, numbers, over
from torch.utils.data import Subset


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("saved_world", (1, 2))
def test_state_at_every_batch(order, saved_world):
    """Saved after any batch, loaded with other threads, ranks and batch sizes: what is left comes
    exactly once."""
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
            assert sorted(had + rest) == list(range(count)), (stop, world)


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
    torchs = leat.DataLoader(Rows(61), 4)
    next(iter(torchs))
    shared = leat.DataLoader(Rows(61), 4, rank=0, world_size=2)
    with pytest.raises(ValueError, match="ranks"):
        shared.load_state_dict(torchs.state_dict())
