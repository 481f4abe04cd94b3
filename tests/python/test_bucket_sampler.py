"""leat.BucketSampler: batches by length in torch's DataLoader and in leat's, ranks and states."""

import copy
import json
import pickle

import numpy
import pytest
import torch
from loader_kit import Rows, leat, leat_data, thread_ids
from torch.utils.data import Subset


def lognormal(count, seed=0):
    random = numpy.random.default_rng(seed)
    return random.lognormal(5, 0.8, count).astype(numpy.int64)


def ragged(count=300):
    """Sample i repeats the number i."""
    return leat_data.Ragged([torch.full((1 + n,), i) for i, n in enumerate(lognormal(count))])


def of(loader):
    """The sample numbers of each batch."""
    return [rows[:, 0].tolist() for rows, _ in loader]


KINDS = {
    "samples": {"batch_size": 7},
    "tokens": {"max_tokens": 4096},
    "both": {"max_tokens": 4096, "batch_size": 5, "pad_to_multiple_of": 16},
    "window": {"batch_size": 7, "window": 30, "seed": 5},
    "plain": {"batch_size": 7, "shuffle": False},
}


def sampler(dataset, kind, **more):
    return leat.BucketSampler(dataset, allow_long=True, **KINDS[kind], **more)


# ---- One rank.


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_once_through_both_loaders(kind):
    dataset = ragged()
    mine = leat.DataLoader(dataset, batch_sampler=sampler(dataset, kind), collate_fn=leat.Pad())
    torchs = torch.utils.data.DataLoader(
        dataset, batch_sampler=sampler(dataset, kind), collate_fn=leat.Pad()
    )
    assert mine.plan().runs_in_c, mine.plan()
    assert "one batch at a time" not in str(mine.plan())  # batches are made ahead
    epochs = []
    for _ in range(3):
        expected = len(mine)
        assert len(torchs) == expected
        batches = of(mine)
        assert batches == of(torchs) and len(batches) == expected
        assert sorted(sum(batches, [])) == list(range(300))
        epochs.append(batches)
    assert (epochs[0] == epochs[1]) == (kind == "plain")


@pytest.mark.parametrize("multiple", (1, 64))
def test_the_budget_holds_for_the_padded_batch(multiple):
    dataset = ragged()
    batches = leat.BucketSampler(dataset, max_tokens=8192, pad_to_multiple_of=multiple)
    collate = leat.Pad(pad_to_multiple_of=None if multiple == 1 else 64)
    loader = leat.DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_threads=2)
    iterator = iter(loader)
    sizes = [next(iterator)[0].numel()]
    threads = thread_ids()
    sizes += [rows.numel() for rows, _ in iterator]
    assert thread_ids() == threads  # one engine served all: its slots fit the largest batch
    assert max(sizes) <= 8192 and sum(sizes) / len(sizes) > 4096


def test_padding_is_less_than_half_of_that_of_random_batches():
    lengths = lognormal(20000)

    def waste(batches):
        return sum(lengths[b].max() * len(b) - lengths[b].sum() for b in map(numpy.array, batches))

    order = numpy.random.default_rng(1).permutation(20000).tolist()
    random = [order[i : i + 32] for i in range(0, 20000, 32)]
    assert waste(leat.BucketSampler(lengths, 32)) * 2 < waste(random)


def test_epochs():
    dataset = ragged()
    batches = sampler(dataset, "tokens")
    first, second = list(batches), list(batches)
    assert first != second
    batches.set_epoch(0)
    assert list(batches) == first and list(batches) == second
    loader = leat.DataLoader(dataset, batch_sampler=batches, collate_fn=leat.Pad())
    loader.set_epoch(0)
    assert of(loader) == first and of(loader) == second
    assert list(sampler(dataset, "tokens", seed=9)) != first
    assert list(pickle.loads(pickle.dumps(batches))) == list(copy.copy(batches))


def test_accepted_kinds_of_lengths():
    lengths = lognormal(50).tolist()
    expected = list(leat.BucketSampler(lengths, 4))
    for same in (
        torch.tensor(lengths),
        torch.tensor(lengths, dtype=torch.int32),
        numpy.array(lengths),
        tuple(lengths),
        leat_data.Ragged([torch.zeros(n) for n in lengths]),
    ):
        assert list(leat.BucketSampler(same, 4)) == expected
    half = Subset(leat_data.Ragged([torch.zeros(n) for n in lengths]), range(0, 50, 2))
    assert list(leat.BucketSampler(half, 4)) == list(leat.BucketSampler(lengths[::2], 4))
    assert list(leat.BucketSampler([], 4)) == [] and len(leat.BucketSampler([], 4)) == 0


def test_lengths_are_copied():
    lengths = numpy.array([1, 2, 3, 4])
    batches = leat.BucketSampler(lengths, max_tokens=4, shuffle=False)
    lengths[:] = 1 << 50
    assert list(batches) == [[3], [2], [1, 0]]


def test_invalid_arguments():
    with pytest.raises(ValueError, match="Sample 1 has 9000 tokens, 9024 when padded.*allow_long"):
        leat.BucketSampler([5, 9000], max_tokens=9000, pad_to_multiple_of=32)
    assert sorted(leat.BucketSampler([5, 9000], max_tokens=100, allow_long=True)) == [[0], [1]]
    with pytest.raises(ValueError, match="batch_size or max_tokens"):
        leat.BucketSampler([1, 2])
    with pytest.raises(TypeError, match="Rows does not know the lengths"):
        leat.BucketSampler(Rows(5), 2)
    for wrong in ([1.5], [[1]], torch.ones(3)):
        with pytest.raises(TypeError, match="must be integers"):
            leat.BucketSampler(wrong, 2)
    with pytest.raises(ValueError, match="Sample 0 has the length -1"):
        leat.BucketSampler([-1], 2)
    for name in ("batch_size", "max_tokens", "window", "pad_to_multiple_of"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            leat.BucketSampler([1], **{"batch_size": 1, name: 0})
    with pytest.raises(ValueError, match="must be given together"):
        leat.BucketSampler([1], 1, rank=0)
    with pytest.raises(ValueError, match="rank must be between 0 and 1"):
        leat.BucketSampler([1], 1, rank=2, world_size=2)
    with pytest.raises(ValueError, match="seed"):
        leat.BucketSampler([1], 1, seed=-1)


# ---- Ranks.


def world(dataset, kind, size, **more):
    return [sampler(dataset, kind, rank=rank, world_size=size, **more) for rank in range(size)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", (2, 3, 8))
def test_ranks_are_disjoint_and_equally_long(kind, size):
    dataset = ragged()
    ranks = [list(rank) for rank in world(dataset, kind, size)]
    assert len({len(batches) for batches in ranks}) == 1
    assert sorted(i for batches in ranks for batch in batches for i in batch) == list(range(300))
    # All but the last step: the sequence of a single rank, divided.
    alone = list(sampler(dataset, kind))
    dealt = [batch for step in list(zip(*ranks))[:-1] for batch in step]
    assert dealt == alone[: len(dealt)]
    shorter = world(dataset, kind, size, drop_last=True)
    said = [len(rank) for rank in shorter]
    dropped = [list(rank) for rank in shorter]
    assert said == [len(batches) for batches in dropped] == [said[0]] * size
    if "max_tokens" not in KINDS[kind]:
        assert all(len(batch) == 7 for batches in dropped for batch in batches)


def test_ranks_of_the_process_group(monkeypatch):
    dataset = ragged()
    batches = sampler(dataset, "samples")
    for name, answer in (("is_initialized", True), ("get_rank", 1), ("get_world_size", 3)):
        monkeypatch.setattr(torch.distributed, name, lambda answer=answer: answer)
    expected = list(world(dataset, "samples", 3)[1])
    assert len(batches) == len(expected) and list(batches) == expected


def test_fewer_samples_than_ranks():
    ranks = world([3, 1, 2], "samples", 5)
    assert [len(rank) for rank in ranks] == [1, 1, 1, 0, 0]
    assert sorted(i for rank in ranks for batch in rank for i in batch) == [0, 1, 2]


# ---- States.


def resumed(rank, saved):
    rank.load_state_dict(saved.state_dict())
    return rank


@pytest.mark.parametrize("kind", ("samples", "tokens", "plain"))
@pytest.mark.parametrize("size", (1, 2, 3))
def test_a_state_is_resumed_by_any_number_of_ranks(kind, size):
    """The sampler's state after every batch."""
    dataset = ragged(100)
    ranks = world(dataset, kind, size, seed=4)
    running = [iter(rank) for rank in ranks]
    had, sizes = [], set()
    while True:
        states = [rank.state_dict() for rank in ranks]
        assert all(state == states[0] for state in states)
        state = json.loads(json.dumps(states[0]))
        sizes.add(len(state))
        for other in (1, 2, 3):
            rest = []
            for rank in world(dataset, kind, other):
                rank.load_state_dict(state)
                expected = len(rank)
                batches = list(rank)
                assert len(batches) == expected
                rest += sum(batches, [])
            assert sorted(had + rest) == list(range(100))
        step = [next(batches, []) for batches in running]
        if not any(step):
            break
        had += sum(step, [])
    assert len(sizes) == 1 and len(had) == 100
    for rank in ranks:  # after StopIteration the next epoch begins
        assert rank.state_dict() == {**state, "epoch": 1, "done": 0, "batches": 0}
        assert sorted(
            i for r in world(dataset, kind, 2) for b in resumed(r, rank) for i in b
        ) == list(range(100))


@pytest.mark.parametrize("workers", (0, 1), ids=("engine", "workers"))
@pytest.mark.parametrize("size", (1, 2, 3))
def test_a_state_of_the_loader(size, workers):
    """leat.DataLoader draws ahead: its state counts the batches the consumer received."""
    dataset = ragged(90)
    # A subclass of Pad runs through torch, whose workers draw ahead as well.
    collate = leat.Pad() if not workers else PadInPython()

    def loaders(count):
        return [
            leat.DataLoader(
                dataset,
                batch_sampler=batches,
                collate_fn=collate,
                num_workers=workers,
                rank=rank,  # as of a process group
                world_size=count,
            )
            for rank, batches in enumerate(world(dataset, "samples", count))
        ]

    ranks = loaders(size)
    assert ranks[0].plan().runs_in_c == (not workers)
    running = [iter(rank) for rank in ranks]
    had = []
    for _ in range(3):
        had += sum((next(rank)[0][:, 0].tolist() for rank in running), [])
        state = ranks[-1].state_dict()
        for other in (1, 2, 3) if not workers else (2,):
            rest = []
            for rank in loaders(other):
                rank.load_state_dict(state)
                rest += sum(of(rank), [])
                assert rank.state_dict()["sampler"]["epoch"] == 1
            assert sorted(had + rest) == list(range(90))
    # And a state of the resumed loader.
    again = loaders(1)[0]
    again.load_state_dict(state)
    iterator = iter(again)
    had += next(iterator)[0][:, 0].tolist()
    last = loaders(1)[0]
    last.load_state_dict(again.state_dict())
    assert sorted(had + sum(of(last), [])) == list(range(90))


class PadInPython(leat.Pad):
    """A subclass, which the engine does not know."""


def test_invalid_states():
    dataset = ragged(60)
    batches = sampler(dataset, "samples")
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    with pytest.raises(ValueError, match="an epoch of 9 batches, this one has 60"):
        leat.BucketSampler(dataset, 1).load_state_dict(state)
    with pytest.raises(ValueError, match="not a state"):
        batches.load_state_dict({})
    loader = leat.DataLoader(dataset, batch_sampler=batches, collate_fn=leat.Pad())
    next(iter(loader))
    saved = loader.state_dict()
    other = leat.DataLoader(dataset, 7, collate_fn=leat.Pad())
    with pytest.raises(ValueError, match="another kind of batch_sampler"):
        other.load_state_dict(saved)
    next(iter(other))
    with pytest.raises(ValueError, match="another kind of batch_sampler"):
        loader.load_state_dict(other.state_dict())
