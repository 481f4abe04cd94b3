"""leat.data.Lmdb and leat.data.Files, against the lmdb module, numpy and torch themselves."""

import io
import os
import pickle
import random

import lmdb
import numpy
import pytest
import torch
from loader_kit import files_now, leat
from torch.utils.data import DataLoader


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def saved(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    return file.getvalue()


def write_lmdb(path, items, db=None, **options):
    """What LMDB itself makes of the items."""
    env = lmdb.open(str(path), map_size=1 << 28, max_dbs=4, **options)
    handle = env.open_db(db) if db else None
    with env.begin(write=True) as txn:
        for key, value in items:
            txn.put(key, value, db=handle)
    env.close()


def rows(count, *shape):
    return [torch.full(shape, float(i)) for i in range(count)]


def equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            equal(a, b)
    else:
        assert one == other


def same_batches(dataset, samples, runs_in_c=True, **options):
    """The dataset gives those samples, alone and in batches: through torch and through leat."""
    assert len(dataset) == len(samples)
    for index, sample in enumerate(samples):
        equal(dataset[index], sample)
    equal(dataset[-1], samples[-1])
    loader = leat.DataLoader(dataset, batch_size=7, **options)
    assert loader.plan().runs_in_c == runs_in_c, loader.plan()
    expected = list(DataLoader(samples, batch_size=7, **options))
    equal(list(loader), expected)
    equal(list(DataLoader(dataset, batch_size=7, **options)), expected)
    equal(pickle.loads(pickle.dumps(dataset))[3], samples[3])


# ---- LMDB


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("subdir", [True, False])
def test_lmdb_is_read_as_lmdb_reads_it(tmp_path, seed, subdir):
    """Keys of all lengths and values of none to many pages: the same, in the same order."""
    draw = random.Random(seed)
    longest = draw.choice([8, 40, 500])
    items = {
        draw.randbytes(draw.randint(1, longest)): draw.randbytes(
            draw.choice([0, 1, 30, 400, 2000, 2100, 5000, 30000])
        )
        for _ in range(draw.choice([1, 30, 700]))
    }
    path = tmp_path / "data"
    write_lmdb(path, items.items(), subdir=subdir)
    # Freed and reused pages are in the file too.
    env = lmdb.open(str(path), map_size=1 << 28, subdir=subdir)
    for key in list(items)[::3]:
        with env.begin(write=True) as txn:
            items[key] = draw.randbytes(draw.randint(0, 6000))
            txn.put(key, items[key])
    with env.begin() as txn:
        expected = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
    env.close()
    assert expected == sorted(items.items())
    dataset = leat.data.Lmdb(path, keys=True, skip=())
    assert dataset.__getitems__(range(len(dataset))) == expected
    assert dataset.__getitems__([]) == []
    order = draw.sample(range(len(dataset)), len(dataset))
    assert dataset.__getitems__(order) == [expected[i] for i in order]


def test_lmdb_writes_nothing(tmp_path):
    write_lmdb(tmp_path / "data", [(b"%08d" % i, b"value") for i in range(20)])
    os.remove(tmp_path / "data" / "lock.mdb")
    before = (tmp_path / "data" / "data.mdb").read_bytes()
    open_files = files_now()
    dataset = leat.data.Lmdb(tmp_path / "data")
    assert dataset[19] == b"value"
    del dataset
    assert os.listdir(tmp_path / "data") == ["data.mdb"]
    assert (tmp_path / "data" / "data.mdb").read_bytes() == before
    assert files_now() == open_files


VALUES = {
    "bytes": ("bytes", [b"x" * i for i in range(23)], bytes),
    "str": ("str", [f"text {i} ä" for i in range(23)], str.encode),
    "int": ("int", [i - 3 for i in range(23)], lambda i: b"%d\n" % i),
    "npy": ("npy", rows(23, 3, 4), lambda t: npy(t.numpy())),
    "npy_scalar": ("npy", [torch.tensor(i) for i in range(23)], lambda t: npy(t.numpy())),
    "fortran": ("npy", rows(23, 3, 4), lambda t: npy(numpy.asfortranarray(t.numpy()))),
    "torch": ("torch", rows(23, 3, 4), saved),
    "bfloat16": ("torch", [t.bfloat16() for t in rows(23, 5)], saved),
    "array": (("float32", (3, 4)), rows(23, 3, 4), lambda t: t.numpy().tobytes()),
    "one": (("float32", ()), rows(23), lambda t: t.numpy().tobytes()),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(tmp_path, name):
    """Each kind of value, of LMDB and of files, in the batches torch makes of the samples."""
    spec, samples, encode = VALUES[name]
    runs_in_c = spec != "torch"
    write_lmdb(tmp_path / "data", [(b"%08d" % i, encode(s)) for i, s in enumerate(samples)])
    same_batches(leat.data.Lmdb(tmp_path / "data", spec), samples, runs_in_c)
    with_keys = leat.data.Lmdb(tmp_path / "data", spec, keys="int")
    same_batches(with_keys, list(enumerate(samples)), runs_in_c)
    for i, sample in enumerate(samples):
        (tmp_path / f"{i:03d}.value").write_bytes(encode(sample))
    files = leat.data.Files(tmp_path, spec, pattern="*.value")
    same_batches(files, samples, runs_in_c)
    labelled = leat.data.Files(files.paths, spec, labels=range(23))
    same_batches(labelled, list(zip(samples, range(23))), runs_in_c)


def test_values_of_torch_save_run_through_torch(tmp_path):
    """Whatever torch.load(weights_only=True) reads; the plan shows which side reads it."""
    samples = [{"x": torch.arange(i), "y": [i, "text"]} for i in range(1, 9)]
    write_lmdb(tmp_path / "data", [(b"%08d" % i, saved(s)) for i, s in enumerate(samples)])
    dataset = leat.data.Lmdb(tmp_path / "data", "torch")
    for sample, expected in zip(dataset, samples):
        assert sample["y"] == expected["y"] and torch.equal(sample["x"], expected["x"])
    loader = leat.DataLoader(dataset, batch_size=1)
    assert "torch.load()" in str(loader.plan()) and not loader.plan().runs_in_c
    assert [batch["x"].shape[1] for batch in loader] == list(range(1, 9))


@pytest.mark.parametrize(
    "spec, encode",
    [
        (("npy", None), lambda t: npy(t.numpy())),
        ("torch", saved),
        (("int64", (None, 2)), lambda t: t.numpy().tobytes()),
    ],
)
def test_values_of_different_length(tmp_path, spec, encode):
    samples = [torch.arange(2 * i).reshape(i, 2) for i in range(1, 24)]
    write_lmdb(tmp_path / "data", [(b"%08d" % i, encode(s)) for i, s in enumerate(samples)])
    for i, sample in enumerate(samples):
        (tmp_path / f"{i:03d}.value").write_bytes(encode(sample))
    pad = leat.Pad(return_lengths=False)
    runs_in_c = spec != "torch"
    same_batches(leat.data.Lmdb(tmp_path / "data", spec), samples, runs_in_c, collate_fn=pad)
    files = leat.data.Files(tmp_path, spec, pattern="*.value")
    same_batches(files, samples, runs_in_c, collate_fn=pad)


def test_single_bytes_as_tensors(tmp_path):
    samples = [torch.arange(i, dtype=torch.uint8) for i in range(1, 12)]
    write_lmdb(tmp_path / "data", [(b"%02d" % i, bytes(s.tolist())) for i, s in enumerate(samples)])
    dataset = leat.data.Lmdb(tmp_path / "data", ("uint8", (None,)))
    same_batches(dataset, samples, collate_fn=leat.Pad(return_lengths=False))


def test_lmdb_database_and_skip(tmp_path):
    items = [(b"%08d" % i, b"%d" % i) for i in range(9)]
    write_lmdb(tmp_path / "data", [*items, (b"__len__", b"9"), (b"notes", b"none")], db=b"train")
    assert list(
        leat.data.Lmdb(tmp_path / "data", "int", db="train", skip=("__len__", b"notes"))
    ) == [*range(9)]
    assert len(leat.data.Lmdb(tmp_path / "data", db="train")) == 10
    with pytest.raises(ValueError, match="is a named database, not a value"):
        leat.data.Lmdb(tmp_path / "data")
    with pytest.raises((ValueError, OSError), match='has no database named "test"'):
        leat.data.Lmdb(tmp_path / "data", db="test")


def test_lmdb_integer_keys(tmp_path):
    env = lmdb.open(str(tmp_path / "data"), map_size=1 << 24, max_dbs=2)
    db = env.open_db(b"numbered", integerkey=True)
    with env.begin(write=True) as txn:
        for i in range(600):
            txn.put(i.to_bytes(8, "little"), b"%d" % i, db=db)
    env.close()
    dataset = leat.data.Lmdb(tmp_path / "data", "int", db="numbered", keys=("int64", ()))
    assert [(int(key), value) for key, value in dataset] == [(i, i) for i in range(600)]


def test_lmdb_with_a_writer(tmp_path):
    """A transaction that ends meanwhile is an error; one that has only begun is none."""
    items = [(b"%08d" % i, bytes(3000)) for i in range(50)]
    write_lmdb(tmp_path / "data", items)
    dataset = leat.data.Lmdb(tmp_path / "data")
    env = lmdb.open(str(tmp_path / "data"), map_size=1 << 28)
    with env.begin(write=True) as txn:
        txn.put(b"00000001", b"other" * 1000)
        assert dataset[1] == bytes(3000)
    with pytest.raises(ValueError, match="was written to"):
        dataset[1]
    with pytest.raises(ValueError, match="was written to"):
        list(leat.DataLoader(dataset, batch_size=4))
    assert leat.data.Lmdb(tmp_path / "data")[1] == b"other" * 1000
    env.close()


def test_lmdb_refused(tmp_path):
    write_lmdb(tmp_path / "data", [(b"%08d" % i, pickle.dumps({"x": i})) for i in range(5)])
    with pytest.raises(ValueError, match="pickle is a program"):
        leat.data.Lmdb(tmp_path / "data", "pickle")
    with pytest.raises(ValueError, match="is a pickle, a program that only Python can run"):
        leat.data.Lmdb(tmp_path / "data", "npy")
    with pytest.raises(ValueError, match="not what torch.save"):
        leat.data.Lmdb(tmp_path / "data", "torch")[0]
    with pytest.raises(ValueError, match='key "00000000": the value is a pickle'):
        leat.data.Lmdb(tmp_path / "data", ("float32", (3,)))[0]
    env = lmdb.open(str(tmp_path / "pairs"), map_size=1 << 24, max_dbs=2)
    env.open_db(b"pairs", dupsort=True)
    env.close()
    with pytest.raises(ValueError, match="DUPSORT"):
        leat.data.Lmdb(tmp_path / "pairs", db="pairs")
    (tmp_path / "text").write_text("no LMDB")
    with pytest.raises(ValueError, match="is not an LMDB file"):
        leat.data.Lmdb(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        leat.data.Lmdb(tmp_path / "missing")


@pytest.mark.parametrize(
    "spec", ["jpeg", ("float32",), ("float32", (0,)), ("object", (3,)), ("npy", (3,)), None, 3]
)
def test_invalid_specs(tmp_path, spec):
    write_lmdb(tmp_path / "data", [(b"0", b"1")])
    with pytest.raises((ValueError, TypeError)):
        leat.data.Lmdb(tmp_path / "data", spec)


def test_bad_samples(tmp_path):
    """on_error: path, key and reason; the rest goes on."""
    items = [(b"%08d" % i, numpy.full(4, i, "f4").tobytes()) for i in range(40)]
    items[11] = (b"00000011", b"short")
    write_lmdb(tmp_path / "data", items)
    dataset = leat.data.Lmdb(tmp_path / "data", ("float32", (4,)))
    with pytest.raises(ValueError, match='data.mdb, key "00000011": the value has 5 bytes'):
        list(leat.DataLoader(dataset, batch_size=8))
    loader = leat.DataLoader(dataset, batch_size=8, on_error="skip")
    seen = [int(i) for batch in loader for i in batch[:, 0]]
    assert sorted(seen) == [i for i in range(40) if i != 11]
    assert [error[1] for error in loader.stats().errors] == [11]


def test_after_a_fork_and_in_workers(tmp_path):
    write_lmdb(tmp_path / "data", [(b"%08d" % i, b"%d" % i) for i in range(30)])
    dataset = leat.data.Lmdb(tmp_path / "data", "int")
    for context in ("fork", "spawn"):
        loader = DataLoader(dataset, 5, num_workers=1, multiprocessing_context=context)
        assert [i for batch in loader for i in batch.tolist()] == list(range(30))


def test_lmdb_beside_the_lmdb_module(tmp_path):
    """A source that is closed takes no lock away from a writer of the same process."""
    write_lmdb(tmp_path / "data", [(b"%08d" % i, b"value") for i in range(20)])
    env = lmdb.open(str(tmp_path / "data"), map_size=1 << 28)
    first, second = (leat.data.Lmdb(tmp_path / "data") for _ in range(2))
    with env.begin() as reader:
        del first
        with env.begin(write=True) as txn:
            txn.put(b"00000003", b"other")
        assert reader.get(b"00000003") == b"value"
        assert len(env.readers().splitlines()) == 2  # a headline and the reader
    with pytest.raises(ValueError, match="was written to"):
        second[3]
    env.close()


# ---- Files


def make_classes(root):
    """Folders and files in the order in which torchvision numbers them."""
    expected = []
    for label, name in enumerate(["a_cat", "b_dog", "c"]):
        for place in ("", "deeper", "deeper/still", "z"):
            os.makedirs(root / name / place, exist_ok=True)
            for file in ("0.npy", "1.npy", "10.npy", "2.npy"):
                path = root / name / place / file
                numpy.save(path, numpy.full((2, 3), len(expected), "f4"))
                expected.append((str(path), label))
        (root / name / "notes.txt").write_text("no sample")
    (root / "top.npy").write_text("in no folder")
    return expected


def test_labels_are_those_of_folders(tmp_path):
    expected = make_classes(tmp_path)
    dataset = leat.data.Files(tmp_path, "npy", pattern="*.npy", labels=True)
    assert dataset.classes == ["a_cat", "b_dog", "c"]
    assert dataset.class_to_idx == {"a_cat": 0, "b_dog": 1, "c": 2}
    assert list(zip(dataset.paths, dataset.labels)) == expected
    samples = [(torch.full((2, 3), float(i)), label) for i, (_, label) in enumerate(expected)]
    same_batches(dataset, samples)
    both = leat.data.Files(tmp_path, pattern=("*.npy", "*.txt"), labels=True)
    assert len(both) == len(expected) + 3


def test_bad_files(tmp_path):
    for i in range(20):
        numpy.save(tmp_path / f"{i:02d}.npy", numpy.full(4, i))
    dataset = leat.data.Files(tmp_path, "npy")
    os.remove(tmp_path / "03.npy")
    os.truncate(tmp_path / "05.npy", 150)
    (tmp_path / "07.npy").write_text("something else")
    numpy.save(tmp_path / "09.npy", numpy.zeros(5))
    with pytest.raises(FileNotFoundError, match="03.npy"):
        dataset[3]
    for index, reason in ((5, "cut short"), (7, "not a .npy"), (9, "float64.5., but")):
        with pytest.raises(ValueError, match=f"{index:02d}.npy: the value is .*{reason}"):
            dataset[index]
    open_files = files_now()
    loader = leat.DataLoader(dataset, batch_size=4, on_error="skip")
    seen = [int(i) for batch in loader for i in batch[:, 0]]
    assert sorted(seen) == [i for i in range(20) if i not in (3, 5, 7, 9)]
    assert sorted(error[1] for error in loader.stats().errors) == [3, 5, 7, 9]
    assert files_now() <= open_files + 1  # none is kept


def test_long_paths_leave_room_for_the_reason(tmp_path):
    deep = tmp_path
    for _ in range(3):
        deep = deep / ("long" * 40)
    os.makedirs(deep)
    write_lmdb(deep / "data", [(b"key 1", b"12345")])
    (deep / "file").write_bytes(b"12345")
    for dataset in (
        leat.data.Lmdb(deep / "data", ("int64", ())),
        leat.data.Files([deep / "file"], ("int64", ())),
    ):
        loader = leat.DataLoader(dataset, on_error="skip")
        list(loader)
        ((_, _, text),) = loader.stats().errors
        assert "the value has 5 bytes, not the 8 of int64[]" in text
        assert "data.mdb" in text or "/file" in text


def test_files_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        leat.data.Files(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="no files that match"):
        leat.data.Files(tmp_path, pattern="*.npy")
    with pytest.raises(FileNotFoundError, match="no folders"):
        leat.data.Files(tmp_path, labels=True)
    (tmp_path / "a").write_text("1")
    with pytest.raises(ValueError, match="2 labels are given for 1 files"):
        leat.data.Files(tmp_path, labels=[1, 2])
    with pytest.raises(ValueError, match="needs a folder"):
        leat.data.Files([tmp_path / "a"], labels=True)
    with pytest.raises(ValueError):
        leat.data.Files([])
    with pytest.raises(ValueError, match="null byte"):
        leat.data.Files([f"{tmp_path}/a\0b"])
