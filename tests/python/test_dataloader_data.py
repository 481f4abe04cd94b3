"""leat.data: torch datasets that the engine reads; bad samples; the documentation's examples."""

import collections
import os
import pickle
import random
import re
import struct
import zipfile

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
    """(dataset of 100 rows, rows, function that removes the last ten from the file)"""
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
def test_a_bad_sample_is_skipped_or_replaced(cut_short, policy):
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
    stats = loader.stats()
    assert stats.bad_samples == len(stats.errors) == 10
    assert sorted(index for _, index, _ in stats.errors) == list(range(90, 100))
    assert all("rows.npy" in text for _, _, text in stats.errors)


def test_stats_keep_the_errors_of_closed_engines(tmp_path):
    """Of two engines of a loader, one is closed when both iterators have ended."""
    for i in range(5):
        (tmp_path / f"{i}").write_bytes(b"%d" % i)
    dataset = leat_data.Files([tmp_path / f"{i}" for i in range(6)], value="int")  # 5 is missing
    loader = leat.DataLoader(dataset, 2, on_error="skip", num_threads=1)
    first, second = iter(loader), iter(loader)
    assert [len(list(first)), len(list(second))] == [3, 3]
    stats = loader.stats()
    assert stats.threads == 1 and stats.bad_samples == 2
    assert [index for _, index, _ in stats.errors] == [5, 5]


def test_arguments_without_effect_are_errors():
    loader = leat.DataLoader(Rows(5), on_error="skip")
    with pytest.raises(ValueError, match="on_error='skip' needs .* Python code of its own"):
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
    inner = [("a", ">i2"), ("b", ">c8", 2)]
    kinds = [("id", "i8"), ("ok", "?"), ("box", "f4", (2, 2)), ("rgb", "u1", 3), ("in", inner, 2)]
    structured = numpy.zeros((23,), kinds)
    structured["in"]["a"] = y[:, None]
    structured["in"]["b"][:, 1, 1] = y - 2j
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
    assert isinstance(dataset, Dataset) and loader.plan().runs_in_c, loader.plan()
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


def test_invalid_datasets(tmp_path):
    with pytest.raises(ValueError, match="different lengths"):
        leat_data.Tensors(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="no rows"):
        leat_data.Tensors(torch.tensor(1))
    with pytest.raises(TypeError, match="no field is given"):
        leat_data.Tensors()
    with pytest.raises(TypeError, match="by position"):
        leat_data.Tensors(torch.ones(3), x=torch.ones(3))
    with pytest.raises(FileNotFoundError):
        leat_data.Npy(tmp_path / "absent.npy")
    numpy.save(tmp_path / "text.npy", numpy.array(["a", "b"]))
    with pytest.raises(ValueError, match="text.npy has the type .*U1.*, which torch does not have"):
        leat_data.Npy(tmp_path / "text.npy")
    numpy.save(tmp_path / "two.npy", numpy.zeros(2))
    numpy.save(tmp_path / "three.npy", numpy.zeros(3))
    with pytest.raises(ValueError, match='three.npy|"three"'):
        leat_data.Npy(tmp_path / "two.npy", tmp_path / "three.npy")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="not a multiple"):
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


# ---- Damaged files: an error, or what the ecosystem's own reader gives.


def outcomes(path, makes, expected, mutations):
    """(files read, files refused). What is read must equal expected()."""
    read = refused = 0
    for data in mutations:
        path.write_bytes(data)
        try:
            dataset = makes()
            batches = list(leat.DataLoader(dataset, 5, num_threads=2))
        except (ValueError, OSError) as error:
            assert path.name in str(error)
            refused += 1
            continue
        truth = expected()
        assert same(batches, list(torch.utils.data.DataLoader(truth, 5)))
        assert same(list(torch.utils.data.DataLoader(dataset, 5)), batches)
        read += 1
    return read, refused


def changed(raw, positions, seed, count=200):
    """Copies with one to three bytes changed, at some of the positions."""
    dice = random.Random(seed)
    for _ in range(count):
        data = bytearray(raw)
        for _ in range(dice.randrange(1, 4)):
            at = dice.choice(positions)
            data[at] = dice.choice((0, 32, 48, 50, 57, data[at] ^ (1 << dice.randrange(8)), 255))
        yield bytes(data)


def tensor_of_row(row):
    """In the machine's byte order; a dict for a structured row."""
    if row.dtype.names:
        return {name: tensor_of_row(row[name]) for name in row.dtype.names}
    row = numpy.asarray(row)
    return torch.from_numpy(numpy.array(row, dtype=row.dtype.newbyteorder("="), order="C"))


class Expected(Dataset):
    """The expected samples."""

    def __init__(self, samples):
        self.samples = list(samples)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@pytest.mark.parametrize("kind", ("<f4", ">i2", "fortran", "structured"))
def test_mutated_npy_are_refused_or_read_as_numpy_reads_them(tmp_path, kind):
    path = tmp_path / "mutated.npy"
    rows = numpy.arange(138).reshape(23, 2, 3)
    if kind == "structured":
        rows = numpy.zeros(23, [("id", "i8"), ("box", "f4", (2, 2))])
        rows["id"] = numpy.arange(23)
    elif kind == "fortran":
        rows = numpy.asfortranarray(rows)
    else:
        rows = rows.astype(kind)
    numpy.save(path, rows)
    raw = path.read_bytes()
    written = raw.index(b"}") + 1  # blanks follow

    read, refused = outcomes(
        path,
        lambda: leat_data.Npy(path),
        lambda: Expected(map(tensor_of_row, numpy.load(path, mmap_mode="r"))),
        changed(raw, range(written), kind),
    )
    assert read + refused == 200 and read > 0 and refused > 100


def npz(path):
    """(arrays, bytes of the file, positions of the members). x and y differ only in their names."""
    arrays = {"x": numpy.arange(46).reshape(23, 2), "y": numpy.arange(46, 92).reshape(23, 2)}
    arrays["z"] = numpy.arange(23, dtype=numpy.float32)
    numpy.savez(path, **arrays)
    raw, inside = path.read_bytes(), []
    for array in arrays.values():
        end = raw.index(array.tobytes()) + array.nbytes
        inside.append(range(raw.rindex(b"\x93NUMPY", 0, end), end))
    return arrays, raw, inside


def expected_of_npz(path, arrays):
    """As numpy reads it. numpy checks checksums: where only these are damaged, as it was
    written."""
    try:
        with numpy.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except zipfile.BadZipFile as error:
        assert "Bad CRC-32" in str(error)
    rows = zip(*arrays.values())
    return Expected(dict(zip(arrays, map(tensor_of_row, map(numpy.asarray, row)))) for row in rows)


def test_mutated_npz_are_refused_or_read_as_numpy_reads_them(tmp_path):
    path = tmp_path / "mutated.npz"
    arrays, raw, inside = npz(path)
    around = [at for at in range(len(raw)) if not any(at in member for member in inside)]
    read, refused = outcomes(
        path,
        lambda: leat_data.Npy(path),
        lambda: expected_of_npz(path, arrays),
        changed(raw, around, "npz"),
    )
    assert read + refused == 200 and read > 20 and refused > 50


def test_mutated_members_of_npz_are_found_by_check(tmp_path):
    path = tmp_path / "mutated.npz"
    arrays, raw, inside = npz(path)

    def checked():
        dataset = leat_data.Npy(path)
        dataset.check()
        return dataset

    places = [at for member in inside for at in (*member[:128], *member[128::8])]
    read, refused = outcomes(
        path, checked, lambda: expected_of_npz(path, arrays), changed(raw, places, "members")
    )
    assert read + refused == 200 and refused > 150


def test_npz_with_inconsistent_members(tmp_path):
    path = tmp_path / "lies.npz"
    arrays, raw, inside = npz(path)
    entries = [found.start() for found in re.finditer(b"PK\1\2", raw)]

    def put(*changes):
        data = bytearray(raw)
        for at, value in changes:
            data[at : at + len(value)] = value
        path.write_bytes(data)

    first, second = (raw[at + 42 : at + 46] for at in entries[:2])
    put((entries[0] + 42, second), (entries[1] + 42, first))  # x at the offset of y
    with pytest.raises(ValueError, match="lies.npz"):
        leat_data.Npy(path)
    longer = struct.pack("<II", *[len(inside[0]) + 64] * 2)
    put((entries[0] + 20, longer))  # overlaps the next one
    with pytest.raises(ValueError, match="not as long"):
        leat_data.Npy(path)
    for shape, error in ((b"(29, 2)", "cut short"), (b"(19, 2)", "not as long")):
        put((raw.index(b"(23, 2)"), shape))
        with pytest.raises(ValueError, match=error):
            leat_data.Npy(path)
    put((inside[1].stop - 8, b"\x07"))
    dataset = leat_data.Npy(path)
    with pytest.raises(ValueError, match=r"lies.npz: y.npy is damaged"):
        dataset.check()
    put()
    leat_data.Npy(path).check()
    numpy.save(tmp_path / "plain.npy", arrays["x"])
    leat_data.Npy(tmp_path / "plain.npy").check()  # has no checksum


def expected_of_index(stem, documents):
    """The tokens of each sequence or document, parsed independently."""
    types = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
    with open(stem + ".idx", "rb") as file:
        raw = file.read()
    assert raw[:9] == b"MMIDIDX\0\0" and struct.unpack_from("<Q", raw, 9) == (1,)
    kind, sequences, count = struct.unpack_from("<BQQ", raw, 17)
    lengths = struct.unpack_from(f"<{sequences}i", raw, 34)
    starts = struct.unpack_from(f"<{sequences}q", raw, 34 + 4 * sequences)
    with open(stem + ".bin", "rb") as file:
        data = file.read()
    size = numpy.dtype(types[kind]).itemsize
    read = [
        numpy.frombuffer(data[start : start + length * size], types[kind])
        for start, length in zip(starts, lengths)
    ]
    assert [len(one) for one in read] == list(lengths)
    if documents:
        firsts = struct.unpack_from(f"<{count}q", raw, 34 + 12 * sequences)
        read = [numpy.concatenate(read[a:b] or [[]]) for a, b in zip(firsts, firsts[1:])]
    return [torch.from_numpy(one.astype(numpy.int64)) for one in read]


@pytest.mark.parametrize("dtype", (numpy.int32, numpy.uint16))
def test_mutated_indices_are_refused_or_read_correctly(tmp_path, dtype):
    stem = os.fspath(tmp_path / "mutated")
    path = tmp_path / "mutated.idx"
    lengths, firsts = [7, 0, 30, 1, 22, 9, 31], [0, 2, 3, 5, 7]
    numpy.arange(120, dtype=dtype).tofile(stem + ".bin")  # with tokens behind the last sequence
    megatron_index(path, dtype, lengths, firsts)
    raw = path.read_bytes()
    read = refused = 0
    for data in changed(raw, range(len(raw)), str(dtype)):
        path.write_bytes(data)
        try:
            rows = torch.cat(list(leat.DataLoader(leat_data.Tokens(stem + ".bin", 1, index=path))))
        except ValueError as error:
            assert "mutated" in str(error)
            refused += 1
        else:
            assert torch.equal(rows[:, 0], torch.cat(expected_of_index(stem, False)))
            read += 1
        try:
            documents = leat_data.Documents(stem)
            found = documents.__getitems__(list(range(len(documents))))
        except ValueError as error:
            assert "mutated" in str(error)
            continue
        truth = expected_of_index(stem, True)
        assert len(found) == len(truth) and all(map(torch.equal, found, truth))
    assert read + refused == 200 and read > 3 and refused > 100


# ---- docs/loader.md


def documented():
    with open(os.path.join(ROOT, "docs", "loader.md"), encoding="utf-8") as file:
        return re.findall(r"```python\n(.*?)```", file.read(), re.S)


def test_docs_have_a_block_for_each_source():
    text = "\n".join(documented())
    for name in leat_data.__all__:
        assert f"leat.data.{name}(" in text


def value_files():
    """The LMDB file and the folders that the docs name."""
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
def test_blocks_of_the_docs_run(block, tmp_path, monkeypatch):
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
        assert loader.plan().runs_in_c, loader.plan()
    if "inputs" in names:
        assert torch.equal(names["inputs"][:, 1:], names["targets"][:, :-1])
    if "rest" in names:
        assert len(names["rest"]) == 124


def test_the_plan_in_the_docs_is_the_plan_printed():
    with open(os.path.join(ROOT, "docs", "loader.md"), encoding="utf-8") as file:
        shown = re.search(
            r"    DataLoader over TensorDataset\n(.*?)      \.\.\.", file.read(), re.S
        )
    names = {}
    exec(compile(documented()[0], "docs/loader.md", "exec"), names)
    printed = str(names["loader"].plan()).splitlines()
    lines = [line[4:] for line in shown.group(1).splitlines()]
    assert lines == printed[1 : 1 + len(lines)] and len(lines) == 4


def test_the_plan_names_what_is_decoded(tmp_path):
    numpy.arange(100, dtype=numpy.uint16).tofile(tmp_path / "t.bin")
    (tmp_path / "npy").mkdir()
    numpy.save(tmp_path / "npy" / "0.npy", numpy.zeros(3))
    env = lmdb.open(os.fspath(tmp_path / "v.lmdb"), map_size=1 << 20)
    with env.begin(write=True) as txn:
        txn.put(b"0", b"17")
    env.close()
    with h5py.File(tmp_path / "x.h5", "w") as file:
        packed_chunks = {"chunks": (5,), "compression": "gzip", "shuffle": True}
        file.create_dataset("x", data=numpy.arange(10), **packed_chunks)
        file["y"] = numpy.arange(10)
    write_tar(tmp_path / "s.tar", 3)
    expected = {
        leat_data.Tensors(torch.zeros(3)): "none",
        leat_data.Tokens(tmp_path / "t.bin", 10): "tokens from uint16",
        leat_data.Files(tmp_path / "npy", "npy"): "value from .npy",
        leat_data.Lmdb(tmp_path / "v.lmdb", "int"): "value from digits",
        leat_data.Lmdb(tmp_path / "v.lmdb", "bytes"): "none",
        leat_data.Hdf5(tmp_path / "x.h5", "x", "y"): "x from gzip and shuffle",
        leat_data.Tar(tmp_path / "s.tar", {"cls": "int", "npy": "npy", "txt": "bytes"}): (
            "cls from digits, npy from .npy"
        ),
    }
    for dataset, text in expected.items():
        plan = leat.DataLoader(dataset).plan()
        assert ("decode", text, "C") in plan.rows, plan
    through_torch = leat.DataLoader(Rows(3)).plan()
    assert "decode" not in [row[0] for row in through_torch.rows]
