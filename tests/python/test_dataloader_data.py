"""leat.data: torch datasets that the engine reads; bad samples; the documentation's examples."""

import collections
import os
import pickle
import re

import h5py
import lmdb
import numpy
import pytest
import torch
from conftest import ROOT
from loader_kit import (
    Rows,
    Stream,
    leat,
    leat_data,
    megatron_index,
)
from tar_kit import packed, write_tar
from torch.utils.data import Dataset

# ---- Bad samples.


@pytest.fixture
def cut_short(tmp_path):
    """A .npy of 100 rows of which the last ten are not there any more."""
    path = tmp_path / "rows.npy"
    rows = numpy.arange(100 * 4096, dtype=numpy.float32).reshape(100, 4096)
    numpy.save(path, rows)
    dataset = leat_data.Npy(path)

    def cut():
        os.truncate(path, os.path.getsize(path) - 10 * 4096 * 4)

    return dataset, rows, cut


def first_column(batches):
    return [int(i) // 4096 for batch in batches for i in batch[:, 0].tolist()]


def test_a_bad_sample_is_an_error(cut_short):
    dataset, _, cut = cut_short
    loader = leat.DataLoader(dataset, 20)
    assert first_column(loader) == list(range(100))  # the file is open now
    cut()
    iterator = iter(loader)
    good, said = [], []
    for _ in range(5):
        try:
            good.append(next(iterator))
        except (OSError, ValueError) as error:
            said.append(str(error))
    assert len(said) == 1 and "rows.npy" in said[0]
    assert first_column(good) == list(range(80))
    assert next(iterator, None) is None


@pytest.mark.parametrize("policy", ("skip", "replace"))
def test_a_bad_sample_is_left_out_or_replaced(cut_short, policy):
    dataset, rows, cut = cut_short
    loader = leat.DataLoader(dataset, 20, True, seed=2, on_error=policy)
    assert sorted(first_column(loader)) == list(range(100))  # the file is open now
    cut()
    batches = list(loader)
    seen = first_column(batches)
    for batch, index in zip(torch.cat(batches), seen):
        assert torch.equal(batch, torch.from_numpy(rows[index]))
    assert set(seen) == set(range(90))
    assert all(len(batch) == 20 for batch in batches[:-1])
    if policy == "skip":
        assert len(seen) == 90
    else:
        assert len(seen) == 100
    for _ in range(2):
        stats = loader.stats()
        assert stats.bad_samples == len(stats.errors) == 10
        assert sorted(index for _, index, _ in stats.errors) == list(range(90, 100))
        assert all("rows.npy" in text for _, _, text in stats.errors)
        loader._leat_shared.resting.close()  # what an engine saw is not lost with it


def test_a_policy_without_effect_is_refused():
    loader = leat.DataLoader(Rows(5), on_error="skip")
    with pytest.raises(ValueError, match="on_error='skip' needs .* code of its own"):
        next(iter(loader))
    with pytest.raises(ValueError, match="order='quasi' needs"):
        next(iter(leat.DataLoader(Rows(5), order="quasi")))
    with pytest.raises(ValueError, match="seed=1 needs"):
        next(iter(leat.DataLoader(Stream(), seed=1)))


# ---- leat.data.

Point = collections.namedtuple("Point", "x y")


def tensors_of(tmp_path):
    x = torch.arange(46.0).reshape(23, 2)
    y = numpy.arange(23, dtype=numpy.int16)
    numpy.save(tmp_path / "x.npy", x.numpy())
    numpy.save(tmp_path / "y.npy", y)
    numpy.save(tmp_path / "swapped.npy", y.astype(">i4"))
    numpy.save(tmp_path / "fortran.npy", numpy.asfortranarray(numpy.arange(138).reshape(23, 2, 3)))
    numpy.save(tmp_path / "bools.npy", y % 2 == 0)
    numpy.arange(1000, dtype=numpy.uint16).tofile(tmp_path / "t16.bin")
    numpy.arange(1000, dtype=numpy.int32).tofile(tmp_path / "t32.bin")
    numpy.savez(tmp_path / "both.npz", x=x.numpy(), y=y, z=numpy.asfortranarray(x.numpy()))
    kinds = [("id", "i8"), ("ok", "?"), ("box", "f4", (2, 2)), ("rgb", "u1", 3)]
    structured = numpy.zeros((23,), kinds)
    structured["id"] = y
    structured["box"] = numpy.arange(92).reshape(23, 2, 2)
    structured["rgb"][:, 1] = y
    structured["ok"] = y % 3 == 0
    numpy.save(tmp_path / "structured.npy", structured)
    megatron_index(tmp_path / "m.idx", numpy.int32, [300, 0, 450, 200])
    paths = [tmp_path / "x.npy", tmp_path / "y.npy"]
    return {
        "one": leat_data.Tensors(x),
        "numpy": leat_data.Tensors(y),
        "two": leat_data.Tensors(x, y),
        "named": leat_data.Tensors(x=x, y=y),
        "dict": leat_data.Tensors({"x": x, 5: y}),
        "list": leat_data.Tensors([x, y]),
        "point": leat_data.Tensors(Point(x, y)),
        "npy": leat_data.Npy(paths[0]),
        "npy_two": leat_data.Npy(*paths),
        "npy_named": leat_data.Npy(image=paths[0], label=str(paths[1])),
        "npy_swapped": leat_data.Npy(tmp_path / "swapped.npy"),
        "npy_fortran": leat_data.Npy(tmp_path / "fortran.npy"),
        "npy_bools": leat_data.Npy(tmp_path / "bools.npy"),
        "tokens": leat_data.Tokens(tmp_path / "t16.bin", 10),
        "tokens_overlap": leat_data.Tokens(tmp_path / "t16.bin", 11, stride=10),
        "tokens_apart": leat_data.Tokens(tmp_path / "t16.bin", 10, stride=25),
        "tokens32": leat_data.Tokens(str(tmp_path / "t32.bin"), 64, dtype="int32"),
        "npz": leat_data.Npy(tmp_path / "both.npz"),
        "npy_structured": leat_data.Npy(tmp_path / "structured.npy"),
        "npy_mixed": leat_data.Npy(a=tmp_path / "structured.npy", b=paths[0]),
        "tokens_index": leat_data.Tokens(tmp_path / "t32.bin", 30, index=tmp_path / "m.idx"),
        "tokens_offset": leat_data.Tokens(tmp_path / "t16.bin", 30, offset=100),
        "tokens_all": leat_data.Tokens(tmp_path / "t16.bin", 1000),
    }


NAMES = (
    "one numpy two named dict list point npy npy_two npy_named npy_swapped npy_fortran npy_bools "
    "tokens tokens_overlap tokens_apart tokens32 tokens_all npz npy_structured npy_mixed "
    "tokens_index tokens_offset"
).split()


def same(one, other):
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        )
    if type(one) is not type(other) or len(one) != len(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return all(same(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("name", NAMES)
def test_datasets_are_torch_datasets(name, tmp_path):
    dataset = tensors_of(tmp_path)[name]
    loader = leat.DataLoader(dataset, 4)
    assert isinstance(dataset, Dataset) and loader.plan().lowered, loader.plan()
    through_torch = list(torch.utils.data.DataLoader(dataset, 4))
    assert same(list(loader), through_torch)
    copied = pickle.loads(pickle.dumps(dataset))
    assert same(list(leat.DataLoader(copied, 4)), through_torch)
    assert same(dataset[0], dataset.__getitems__([0])[0]) and same(
        dataset[-1], dataset[len(dataset) - 1]
    )
    for beyond in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[beyond]
    picked = [len(dataset) - 1, 0]
    expected = list(torch.utils.data.DataLoader(dataset, 2, sampler=picked))
    assert same(list(leat.DataLoader(dataset, 2, sampler=picked)), expected)


def test_datasets_in_workers(tmp_path):
    dataset = tensors_of(tmp_path)["npy_named"]
    batches = torch.utils.data.DataLoader(
        dataset, 4, num_workers=1, multiprocessing_context="spawn"
    )
    assert same(list(batches), list(leat.DataLoader(dataset, 4)))


def test_datasets_that_cannot_be(tmp_path):
    with pytest.raises(ValueError, match="different lengths"):
        leat_data.Tensors(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="no rows"):
        leat_data.Tensors(torch.tensor(1))
    with pytest.raises(TypeError, match="nothing"):
        leat_data.Tensors()
    with pytest.raises(TypeError, match="by position"):
        leat_data.Tensors(torch.ones(3), x=torch.ones(3))
    with pytest.raises(FileNotFoundError):
        leat_data.Npy(tmp_path / "absent.npy")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="whole number"):
        leat_data.Tokens(tmp_path / "odd.bin", 1)
    with pytest.raises(ValueError, match="dtype"):
        leat_data.Tokens(tmp_path / "odd.bin", 1, dtype="float32")
    with pytest.raises(ValueError, match="at least 1"):
        leat_data.Tokens(tmp_path / "odd.bin", 0)
    numpy.savez_compressed(tmp_path / "packed.npz", x=numpy.ones(5))
    with pytest.raises(ValueError, match="compressed"):
        leat_data.Npy(tmp_path / "packed.npz")
    (tmp_path / "bad.idx").write_bytes(b"MMIDIDX\0\0" + b"\1" * 40)
    with pytest.raises(ValueError, match="bad.idx"):
        leat_data.Tokens(tmp_path / "odd.bin", 1, index=tmp_path / "bad.idx")
    (tmp_path / "short.bin").write_bytes(b"ab" * 5)
    short = leat_data.Tokens(tmp_path / "short.bin", 6)
    assert len(short) == 0 and list(leat.DataLoader(short)) == []


# ---- What is written about it.


def documented():
    with open(os.path.join(ROOT, "docs", "loader.md"), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.S)


def test_the_documentation_has_a_block_for_each_source():
    text = "\n".join(documented())
    for name in leat_data.__all__:
        assert f"leat.data.{name}(" in text


def value_files():
    """An LMDB file and folders, where the documentation has them."""
    env = lmdb.open("train.lmdb", map_size=1 << 24)
    with env.begin(write=True) as txn:
        for i in range(200):
            txn.put(b"%08d" % i, numpy.full((3, 8, 8), i, numpy.float32).tobytes())
        txn.put(b"__len__", b"200")
    env.close()
    for name in ("cat", "dog"):
        os.makedirs(f"features/{name}")
        for i in range(70):
            numpy.save(f"features/{name}/{i}.npy", numpy.zeros(16, numpy.float32))


@pytest.mark.parametrize("block", documented())
def test_what_is_documented_works_when_pasted(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numpy.save("images.npy", numpy.zeros((500, 8, 8), numpy.uint8))
    numpy.save("labels.npy", numpy.arange(500))
    numpy.savez("train.npz", x=numpy.zeros((500, 3)), y=numpy.arange(500))
    numpy.arange(20000, dtype=numpy.uint16).tofile("train.bin")
    numpy.arange(20000, dtype=numpy.int32).tofile("corpus.bin")
    megatron_index("corpus.idx", numpy.int32, [100] * 200, range(201))
    with h5py.File("train.h5", "w") as file:
        packed_chunks = {"chunks": (10, 8, 8), "compression": "gzip"}
        file.create_dataset("images", data=numpy.zeros((500, 8, 8), numpy.uint8), **packed_chunks)
        file["meta/labels"] = numpy.arange(500)
    for n in range(3):
        os.makedirs("packed", exist_ok=True)
        os.makedirs("shards", exist_ok=True)
        path = write_tar(f"shards/train-{n:03d}.tar", 100, 100 * n)
        os.rename(packed(path, "gz"), f"packed/train-{n:03d}.tar.gz")
    value_files()
    names = {}
    exec(compile(block, "docs/loader.md", "exec"), names)
    loaders = [value for value in names.values() if isinstance(value, leat.DataLoader)]
    datasets = [names["data"]] if "data" in names else []
    assert loaders or datasets
    for loader in loaders + [leat.DataLoader(dataset, 4) for dataset in datasets]:
        assert loader.plan().lowered, loader.plan()
    if "inputs" in names:
        assert torch.equal(names["inputs"][:, 1:], names["targets"][:, :-1])
    if "rest" in names:
        assert len(names["rest"]) == 124


def test_the_documented_plan():
    """The plan shown is the plan printed."""
    with open(os.path.join(ROOT, "docs", "loader.md"), encoding="utf-8") as file:
        shown = re.search(
            r"    DataLoader over TensorDataset\n(.*?)      \.\.\.", file.read(), re.S
        )
    names = {}
    exec(compile(documented()[0], "docs/loader.md", "exec"), names)
    printed = str(names["loader"].plan()).splitlines()
    lines = [line[4:] for line in shown.group(1).splitlines()]
    assert lines == printed[1 : 1 + len(lines)] and len(lines) == 3
