"""leat.DataLoader with several ranks: without shard every rank has all data, as with torch; with it
the ranks share the data, and all have the same number of batches."""

import json

import pytest
import torch
from loader_kit import ORDERS, Rows, leat, numbers, repeated, run_script
from torch.utils.data import Subset

DATASETS = {
    "C": torch.arange,
    "Python": Rows,
    "Subset": lambda count: Subset(torch.arange(200), range(count)),
}


def ranks_of(dataset, world, size, **options):
    return [
        leat.DataLoader(dataset, size, rank=rank, world_size=world, **options)
        for rank in range(world)
    ]


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("world", (1, 2, 3, 7))
@pytest.mark.parametrize("shuffle", (False, True))
def test_ranks_share_the_data(name, world, shuffle):
    """Of fewer samples than ranks in the last step, some come twice: every rank has its batch."""
    for count in (103, 104, 105, 1, 2, 48):
        for size in (8, 1):
            loaders = ranks_of(DATASETS[name](count), world, size, shuffle=shuffle)
            parts = [list(loader) for loader in loaders]
            assert len({len(part) for part in parts}) == 1, (count, size)
            for loader, part in zip(loaders, parts):
                assert len(loader) == len(loader.batch_sampler) == len(part)
                assert sum(map(len, part)) == len(loader.sampler)
            together = [i for part in parts for batch in part for i in batch.tolist()]
            assert set(together) == set(range(count))
            assert len(together) == count + repeated(count, size, world)


@pytest.mark.parametrize("name", DATASETS)
def test_ranks_that_drop_the_last_batch(name):
    for world, size in ((2, 8), (7, 8), (3, 1)):
        loaders = ranks_of(DATASETS[name](103), world, size, shuffle=True, drop_last=True)
        parts = [numbers(loader) for loader in loaders]
        together = [i for part in parts for i in part]
        assert len(set(together)) == len(together) == 103 // (size * world) * size * world
        for loader, part in zip(loaders, parts):
            assert len(part) == len(loader) * size
            assert len(loader) == len(loader.batch_sampler)


@pytest.mark.parametrize("order", (*ORDERS, "Python"))
@pytest.mark.parametrize("count", (22, 21, 20, 1))
def test_ranks_resume_with_the_same_number_of_batches(order, count):
    """Saved after any batch, also after one that repeats a sample."""

    def loaders():
        if order == "Python":
            return ranks_of(Rows(count), 3, 4, shuffle=True, seed=3)
        return ranks_of(torch.arange(count), 3, 4, order=order, seed=3)

    steps = len(loaders()[0])
    for stop in range(steps + 1):
        heads, rests = [], []
        for saving, resumed in zip(loaders(), loaders()):
            iterator = iter(saving)
            heads.append([i for _ in range(stop) for i in next(iterator).tolist()])
            resumed.load_state_dict(json.loads(json.dumps(saving.state_dict())))
            rests.append([batch.tolist() for batch in resumed])
        assert [len(rest) for rest in rests] == [steps - stop] * 3
        rest = [i for part in rests for batch in part for i in batch]
        assert {i for head in heads for i in head} | set(rest) == set(range(count))


def test_the_samplers_of_a_rank_give_its_batches():
    for loader in ranks_of(Rows(30), 3, 4, shuffle=True, seed=5):
        loader.set_epoch(2)
        assert [batch.tolist() for batch in loader] == list(loader.batch_sampler)
    single = leat.DataLoader(Rows(30), None, rank=1, world_size=3)
    assert [int(i) for i in single] == list(single.sampler) and len(single) == 10


SCRIPT = """
    import json, os, sys
    import torch, leat
    rank = int(sys.argv[1])
    store = torch.distributed.FileStore(sys.argv[2], 2)
    early = leat.DataLoader(torch.arange(101), 8, True, shard="auto")
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 101
        def __getitem__(self, index): return torch.tensor(index)
    def walk(loader):
        return [batch.tolist() for batch in loader]
    said = {}
    for name, data in (("C", torch.arange(101)), ("Python", Rows())):
        plain = leat.DataLoader(data, 8)
        theirs = torch.utils.data.DataLoader(data, 8)
        shared = leat.DataLoader(data, 8, True, shard="auto")
        given = torch.utils.data.DistributedSampler(range(101))
        sampled = leat.DataLoader(data, 8, sampler=given, shard="auto")
        torch.manual_seed(rank)
        shuffled = walk(leat.DataLoader(data, 8, True, order="torch"))
        torch.manual_seed(rank)
        shuffled_by_torch = walk(torch.utils.data.DataLoader(data, 8, True))
        said[name] = {
            "as_torch": walk(plain) == walk(theirs) and len(plain) == len(theirs),
            "shuffled_as_torch": shuffled == shuffled_by_torch,
            "length": [len(plain), len(plain.batch_sampler)],
            "plan": [str(plain.plan()), str(shared.plan()), str(sampled.plan())],
            "shared": walk(shared),
            "shared_length": [len(shared), len(shared.batch_sampler)],
            "sampled_as_torch": walk(sampled) == walk(
                torch.utils.data.DataLoader(data, 8, sampler=given)),
        }
    said["early"] = walk(early)
    print(json.dumps(said))
    torch.distributed.destroy_process_group()
"""


def test_ranks_of_torch_distributed(tmp_path):
    """An initialised process group changes nothing; shard="auto" divides the data among it."""
    runs = [run_script(SCRIPT, str(rank), str(tmp_path / "store")) for rank in range(2)]
    said = []
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        said.append(json.loads(out))
    for name in ("C", "Python"):
        for rank in range(2):
            one = said[rank][name]
            assert one["as_torch"] and one["shuffled_as_torch"] and one["sampled_as_torch"]
            assert one["length"] == [13, 13] and one["shared_length"] == [7, 7]
            plain, shared, sampled = one["plan"]
            hint = "each of 2 has all samples; shard='auto' would divide them"
            assert plain.count(hint) == 1 and f"rank {rank} of 2" not in plain
            assert f"rank {rank} of 2" in shared and hint not in shared
            assert "shard= ignored" in sampled
        parts = [said[rank][name]["shared"] for rank in range(2)]
        assert [len(part) for part in parts] == [7, 7]
        assert sorted(i for part in parts for b in part for i in b) == list(range(101))
    together = [i for rank in range(2) for batch in said[rank]["early"] for i in batch]
    assert sorted(together) == list(range(101))
