"""leat.data.Hdf5: every value is the one h5py reads of the same file, or there is an error."""

import itertools
import os
import pickle
import threading

import h5py
import numpy
import pytest
import torch
from loader_kit import leat, leat_data, run_script

TYPES = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 ? >i2 >i4 >i8 >u2 >u4 >u8 >f2 >f4 >f8 >c8 >c16"
TYPES = [
    text
    for text in TYPES.split()
    if numpy.dtype(text).newbyteorder("=").name in leat.loader.engine_spec.NAMES
]
FILTERS = {
    "plain": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "lzf": {"compression": "lzf"},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "gzip-shuffle": {"compression": "gzip", "shuffle": True},
    "lzf-shuffle-fletcher32": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "gzip-shuffle-fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
}
# Shape and chunk: single items, whole rows, cut inner dimensions, edges in every dimension, chunks
# that are larger than what they hold.
SHAPES = {
    "scalar": ((101,), (16,)),
    "one-chunk": ((13,), (13,)),
    "row": ((101, 7), (10, 7)),
    "cut": ((50, 7), (8, 3)),
    "inner": ((23, 5, 6, 7), (4, 2, 6, 3)),
    "deep": ((11, 3, 1, 4, 2), (3, 2, 1, 3, 2)),
    "single-rows": ((19, 6), (1, 4)),
}


def values(shape, dtype, seed=0):
    """Numbers that repeat, so that they can be compressed."""
    found = numpy.random.default_rng(seed).integers(0, 40, shape)
    found[..., -1:] += 17
    return found.astype("i8").astype(dtype)


def write(path, libver=None, **datasets):
    """name=(data, options of create_dataset)"""
    with h5py.File(path, "w", libver=libver) as file:
        for name, (data, options) in datasets.items():
            file.create_dataset(name, data=data, **options)
    return os.fspath(path)


def check(path, *names, **options):
    """All samples, by index and by the loader, against h5py."""
    dataset = leat_data.Hdf5(path, *names, **options)
    with h5py.File(path, "r") as file:
        expected = [file[name][()] for name in names]
    assert len(dataset) == len(expected[0])
    samples = dataset.__getitems__(list(range(len(dataset))))
    for number, sample in enumerate(samples):
        for leaf, rows in zip((sample,) if len(names) == 1 else sample, expected):
            equal(leaf, rows[number])
    where = torch.arange(len(dataset))
    loader = leat.DataLoader(
        dataset, batch_size=7, shuffle=True, order="window", seed=1, num_threads=2
    )
    assert loader.plan().runs_in_c
    batches = [[batch] if len(names) == 1 else batch for batch in loader]
    order = leat.DataLoader(leat_data.Tensors(where), batch_size=7, shuffle=True, seed=1)
    assert sum(len(batch[0]) for batch in batches) == len(dataset) == len(order.dataset)
    for column, rows in zip(zip(*batches), expected):
        found = torch.cat(column).numpy()
        assert sorted(map(bytes, found)) == sorted(map(bytes, native(rows)))
    return dataset


def native(array):
    return array.astype(array.dtype.newbyteorder("="))


def equal(tensor, row):
    row = native(numpy.asarray(row))
    assert tensor.numpy().dtype == row.dtype and tensor.shape == row.shape
    assert tensor.numpy().tobytes() == row.tobytes()


# ---- What can be read.


@pytest.mark.parametrize("libver", ("earliest", "latest"))
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_chunked(tmp_path, shape, filters, libver):
    full, chunk = SHAPES[shape]
    datasets = {
        f"d{n}": (values(full, dtype, n), {"chunks": chunk, **FILTERS[filters]})
        for n, dtype in enumerate(TYPES)
    }
    check(write(tmp_path / "x.h5", libver, **datasets), *datasets)


@pytest.mark.parametrize("libver", ("earliest", "latest"))
@pytest.mark.parametrize("kind", ("contiguous", "compact"))
@pytest.mark.parametrize("shape", ((101,), (13, 7), (11, 2, 3)))
def test_contiguous_and_compact(tmp_path, shape, kind, libver):
    path = os.fspath(tmp_path / "x.h5")
    names = []
    with h5py.File(path, "w", libver=libver) as file:
        for dtype in TYPES:
            data = values(shape, dtype)
            made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            if kind == "compact":
                made.set_layout(h5py.h5d.COMPACT)
            name = f"group/{dtype.strip('<>?')}{len(names)}"
            names.append(name)
            file.require_group("group")
            h5py.h5d.create(
                file.id,
                name.encode(),
                h5py.h5t.py_create(data.dtype, logical=True),
                h5py.h5s.create_simple(shape),
                made,
            )
            file[name][...] = data
    check(path, *names)


INDEXES = {  # what libver="latest" chooses by: how large may it grow, and how is it filled
    "single": ({"chunks": (20, 3)}, 20),
    "implicit": ({"chunks": (4, 3)}, 20),
    "fixed-array": ({"chunks": (4, 3), "compression": "gzip"}, 20),
    "extensible-array": ({"chunks": (4, 3), "maxshape": (None, 3)}, 200),
    "b-tree-2": ({"chunks": (4, 2), "maxshape": (None, None), "compression": "lzf"}, 200),
    "fixed-array-paged": ({"chunks": (1, 3)}, 3000),
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("libver", ("earliest", "v108", "v110", "latest"))
def test_every_index_of_chunks(tmp_path, index, libver):
    options, rows = INDEXES[index]
    path = os.fspath(tmp_path / "x.h5")
    data = values((rows, 3), "f4")
    with h5py.File(
        path, "w", libver=("earliest" if libver == "earliest" else libver, "latest")
    ) as f:
        if index == "implicit":
            made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            made.set_chunk((4, 3))
            made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            space = h5py.h5s.create_simple(data.shape)
            h5py.h5d.create(f.id, b"x", h5py.h5t.IEEE_F32LE, space, made)
            f["x"][...] = data
        else:
            f.create_dataset("x", data=data, **options)
    check(path, "x")


@pytest.mark.parametrize("dtype", ("f4", ">i4", "?", "c8", "u1"))
@pytest.mark.parametrize(
    "options", ({"chunks": (4, 2)}, {"chunks": (4, 2), "compression": "gzip"}, {})
)
def test_never_written(tmp_path, dtype, options):
    path = os.fspath(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        filled = file.create_dataset(
            "filled", (30, 5), dtype, fillvalue=numpy.ones((), dtype)[()], **options
        )
        file.create_dataset("empty", (30, 5), dtype, **options)
        if options:
            filled[9:11] = 0
            filled[20:21, 3:] = 0
    check(path, "filled", "empty")


def test_resized(tmp_path):
    path = os.fspath(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        grown = file.create_dataset(
            "x", data=values((33, 5), "f8"), maxshape=(None, None), chunks=(4, 2), compression="lzf"
        )
        grown.resize((50, 3))
        grown[40:] = 3
        grown.resize((45, 9))
    check(path, "x")


@pytest.mark.parametrize("filters", ("plain", "gzip"))
def test_chunks_larger_than_the_data(tmp_path, filters):
    """As many items in two dimensions as in the chunk's, of other lengths."""
    path = os.fspath(tmp_path / "x.h5")
    options = {"chunks": (3, 2, 4, 3), "maxshape": (10, 5, None, 6), **FILTERS[filters]}
    write(path, x=(values((10, 5, 2, 6), "i4"), options))
    check(path, "x")


def test_filters_that_were_not_applied(tmp_path):
    """lzf is not applied to noise, and a mask says so; a chunk can also be written as it is."""
    path = os.fspath(tmp_path / "x.h5")
    noise = numpy.random.default_rng(0).integers(0, 256, (64, 999)).astype("u1")
    noise[16:32] = 7
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "x", data=noise, chunks=(16, 999), compression="lzf", shuffle=True
        )
        assert {data.id.get_chunk_info(i).filter_mask for i in range(4)} == {0, 2}
        other = file.create_dataset("y", (64,), "i4", chunks=(16,), compression="gzip")
        other[:] = range(64)
        other.id.write_direct_chunk((16,), numpy.arange(100, 116, dtype="i4").tobytes(), 1)
    check(path, "x", "y")


@pytest.mark.parametrize("size", (512, 4096))
@pytest.mark.parametrize("options", ({}, {"chunks": (8,)}, {"chunks": (8,), "compression": "gzip"}))
def test_user_block(tmp_path, size, options):
    path = os.fspath(tmp_path / "x.mat")
    with h5py.File(path, "w", userblock_size=size) as file:
        file.create_dataset("x", data=values((50,), "f4"), **options)
    check(path, "x")


def test_enum_and_bfloat16(tmp_path):
    path = os.fspath(tmp_path / "x.h5")
    kind = h5py.enum_dtype({"RED": 0, "BLUE": 42}, basetype="i2")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numpy.array([42, 0, 42], "i2"), dtype=kind)
        half = h5py.h5t.IEEE_F32LE.copy()  # the upper half of a float32
        half.set_fields(15, 7, 8, 0, 7)
        half.set_size(2)
        half.set_ebias(127)
        h5py.h5d.create(file.id, b"y", half, h5py.h5s.create_simple((3,)))
        file["y"].id.write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.array([1, -2.5, 3e20], "f4"))
    dataset = leat_data.Hdf5(path, "x", "y")
    batch = next(iter(leat.DataLoader(dataset, batch_size=3)))
    assert batch[0].tolist() == [42, 0, 42] and batch[1].dtype == torch.bfloat16
    assert batch[1].tolist() == torch.tensor([1, -2.5, 3e20], dtype=torch.bfloat16).tolist()


# ---- As a dataset.


@pytest.mark.parametrize(
    "options",
    (
        {},
        {"chunks": (8,)},
        {"chunks": (8,), "compression": "gzip", "shuffle": True},
        {"chunks": (8,), "compression": "lzf", "fletcher32": True},
    ),
)
@pytest.mark.parametrize("dtype", ("f4", ">i2", "?", "c16"))
@pytest.mark.parametrize("item", ((3,), (2, 5)))
def test_items_that_are_arrays(tmp_path, item, dtype, options):
    path, unwritten = os.fspath(tmp_path / "x.h5"), 5 if options else 0
    data = values((29, *item), dtype)
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("x", (29 + unwritten,), numpy.dtype((dtype, item)), **options)
        rows[:29] = data
    dataset = check(path, "x")
    equal(dataset[28], data[28])
    assert dataset[0].shape == item


@pytest.fixture
def small(tmp_path):
    gzip = {"chunks": (10, 4), "compression": "gzip"}
    return write(tmp_path / "s.h5", x=(values((97, 4), "f4"), gzip), y=(numpy.arange(97), {}))


def test_structures(small):
    for dataset, kind in (
        (leat_data.Hdf5(small, "y"), torch.Tensor),
        (leat_data.Hdf5(small, "x", "y"), tuple),
        (leat_data.Hdf5(small, ["x", "y"]), tuple),
        (leat_data.Hdf5(small, image="x", label="y"), dict),
        (leat_data.Hdf5(small, {"image": "x", "label": "y"}), dict),
    ):
        assert type(dataset[-1]) is kind and len(dataset) == 97
        copy = pickle.loads(pickle.dumps(dataset))
        same(dataset[5], copy[5])
        theirs = torch.utils.data.DataLoader(dataset, batch_size=10)
        for mine, yours in zip(leat.DataLoader(copy, batch_size=10), theirs):
            same(mine, yours)


def same(mine, yours):
    if isinstance(mine, torch.Tensor):
        assert mine.dtype == yours.dtype and torch.equal(mine, yours)
        return
    assert type(mine) is type(yours) and len(mine) == len(yours)
    pairs = [(mine[k], yours[k]) for k in mine] if isinstance(mine, dict) else zip(mine, yours)
    for a, b in pairs:
        same(a, b)


@pytest.mark.parametrize("context", ("fork", "spawn"))
def test_workers_of_torch(small, context):
    dataset = leat_data.Hdf5(small, "x", "y")
    dataset[3]  # a chunk is unpacked before the fork
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=10, num_workers=2, multiprocessing_context=context
    )
    for mine, yours in zip(leat.DataLoader(dataset, batch_size=10), loader):
        same(mine, yours)


def test_arguments(small):
    for wrong in ((), ("x", 3), ({},)):
        with pytest.raises(TypeError):
            leat_data.Hdf5(small, *wrong)
    with pytest.raises(TypeError):
        leat_data.Hdf5(small, "x", label="y")
    with pytest.raises(ValueError):
        leat_data.Hdf5(small, "x", cache_bytes=-1)
    with pytest.raises(IndexError):
        leat_data.Hdf5(small, "x")[97]


def test_the_plan_says_what_an_order_costs(small):
    text = str(leat.DataLoader(leat_data.Hdf5(small, "x"), shuffle=True).plan())
    assert 'chunks of 10 samples, unpacked whole: order "window"' in text
    assert "unpacked" not in str(leat.DataLoader(leat_data.Hdf5(small, "y")).plan())


def test_fork_after_start(small):
    """The child continues by itself, with the chunks that its parent had unpacked."""
    dataset = leat_data.Hdf5(small, "x", "y")
    loader = leat.DataLoader(
        dataset, batch_size=5, shuffle=True, order="window", seed=3, num_threads=2
    )
    expected = [y.tolist() for _, y in loader]
    for _ in range(20):
        loader.set_epoch(0)
        iterator = iter(loader)
        begun = [next(iterator)[1].tolist() for _ in range(3)]
        child = os.fork()
        if not child:
            code = 1
            try:
                code = int(begun + [y.tolist() for _, y in iterator] != expected)
            finally:
                os._exit(code)
        assert begun + [y.tolist() for _, y in iterator] == expected
        assert os.waitpid(child, 0)[1] == 0


# ---- What is refused.


def refused(path, *names):
    with pytest.raises((ValueError, OSError)) as caught:
        leat_data.Hdf5(path, *names)
    return str(caught.value)


def test_refused_types(tmp_path):
    path = os.fspath(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file["text"] = ["a", "b"]
        file["fixed"] = numpy.array([b"abc", b"d"])
        file["pairs"] = numpy.zeros(3, [("a", "i4"), ("b", "f4")])
        file["long"] = numpy.zeros(3, numpy.longdouble)
        file.create_dataset("arrays", (3,), numpy.dtype(("S3", (2,))))
        file.create_dataset("deep", (3,) * 10, numpy.dtype(("i1", (1,) * 7)))
        file["single"] = 3
        file["wide"] = numpy.zeros((2,) * 17)
        file["no-bytes"] = numpy.zeros((3, 0))
        file.create_group("group")
    assert "strings" in refused(path, "text") and "strings" in refused(path, "fixed")
    assert "compounds" in refused(path, "pairs")
    assert "floats of a kind" in refused(path, "long")
    assert "strings" in refused(path, "arrays")
    assert "dimensions" in refused(path, "deep")
    assert "single item" in refused(path, "single")
    assert "dimensions" in refused(path, "wide")
    assert "without a single byte" in refused(path, "no-bytes")
    for name in ("nothing", "group", "group/nothing"):
        assert f'"{name}" cannot be opened (' in refused(path, name)


def test_refused_layouts(tmp_path):
    path = os.fspath(tmp_path / "x.h5")
    other = write(tmp_path / "other.h5", x=(numpy.arange(10), {}))
    with h5py.File(path, "w", libver="latest") as file:
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource(other, "x", (10,))
        file.create_virtual_dataset("virtual", layout)
        outside = [(os.fspath(tmp_path / "raw"), 0, 80)]
        file.create_dataset("external", (10,), "i8", external=outside)
        file["link"] = h5py.ExternalLink(other, "x")
        file["soft"] = h5py.SoftLink("/plain")
        file["plain"] = numpy.arange(10)
        file.create_dataset("scaled", data=numpy.arange(10), chunks=(5,), scaleoffset=True)
    assert "virtual" in refused(path, "virtual")
    assert "other files" in refused(path, "external")
    assert "link to another file" in refused(path, "link")
    assert "filter scaleoffset (6)" in refused(path, "scaled")
    check(path, "soft")


def test_different_lengths(tmp_path):
    path = write(tmp_path / "x.h5", x=(numpy.arange(10), {}), y=(numpy.arange(11), {}))
    assert '"y" has 11 samples' in refused(path, "x", "y")


def test_not_hdf5(tmp_path):
    path = tmp_path / "x.h5"
    for content in (b"", b"\x89HDF", b"PK" * 5000):
        path.write_bytes(content)
        assert "is not an HDF5 file" in refused(os.fspath(path), "x")
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    assert "x.h5" in refused(os.fspath(path), "x")
    assert "x.h6" in refused(os.fspath(tmp_path / "x.h6"), "x")


def test_without_h5py(small):
    """A sentence that names the package."""
    run = run_script(
        """
        import sys
        sys.modules["h5py"] = None
        import leat.data
        try:
            leat.data.Hdf5(sys.argv[1], "x")
        except ImportError as error:
            print(error)
        """,
        small,
    )
    assert run.communicate(timeout=300) == ("leat.data.Hdf5 needs h5py: pip install h5py\n", "")


class OtherId:
    """A DatasetID of another version of h5py."""

    def __init__(self, id, chunk=None):
        self.id, self.shape, self.asked = id, id.shape, 0
        if chunk:
            self.chunk_iter = lambda visit: id.chunk_iter(
                lambda info: visit(self.scaled(info, chunk))
            )

    def scaled(self, info, chunk):
        return info._replace(chunk_offset=tuple(i // n for i, n in zip(info.chunk_offset, chunk)))

    def get_num_chunks(self):
        return self.id.get_num_chunks()

    def get_chunk_info_by_coord(self, place):
        self.asked += 1
        return self.id.get_chunk_info_by_coord(place)


@pytest.mark.parametrize("counts_chunks", (False, True))
def test_other_versions_of_h5py(tmp_path, counts_chunks):
    """Without chunk_iter(), and with one whose offsets count chunks."""
    path = os.fspath(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("x", (50, 9), "i4", chunks=(8, 4))
        rows[8:16] = 1
        rows[40:] = 2
        expected = []
        rows.id.chunk_iter(expected.append)
        other = OtherId(rows.id, (8, 4) if counts_chunks else None)
        found = leat.data.hdf5.stored_chunks(other, (8, 4))
        assert sorted(found) == sorted(expected) and len(found) == 9
        assert leat.data.hdf5.stored_chunks(rows.id, (8, 4)) == expected


def test_addresses_that_are_wrong(tmp_path, monkeypatch):
    """As libhdf5 before 1.14.4 gave them behind a user block."""
    path = write(tmp_path / "x.h5", x=(values((50, 3), "f4"), {"chunks": (8, 3)}))
    right = leat.data.hdf5.stored_chunks

    def shifted(*arguments):
        return [info._replace(byte_offset=info.byte_offset - 512) for info in right(*arguments)]

    monkeypatch.setattr(leat.data.hdf5, "stored_chunks", shifted)
    assert "update h5py" in refused(path, "x")


# ---- Damage.


def flip(path, at, bits=0xFF):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))


@pytest.mark.parametrize("number", (3, 9))
@pytest.mark.parametrize("filters", ("gzip", "fletcher32", "gzip-shuffle-fletcher32"))
def test_damaged_chunk(tmp_path, filters, number):
    """The samples of the chunk are bad, all others are read."""
    data = values((100, 50), "f4")
    path = write(tmp_path / "x.h5", x=(data, {"chunks": (10, 50), **FILTERS[filters]}))
    with h5py.File(path, "r") as file:
        chunk = file["x"].id.get_chunk_info(number)
    flip(path, chunk.byte_offset + chunk.size // 2)
    dataset = leat_data.Hdf5(path, "x")
    with pytest.raises(ValueError, match=f"chunk {number} is damaged"):
        dataset[10 * number + 5]
    equal(dataset[29], data[29])
    loader = leat.DataLoader(dataset, batch_size=10, on_error="skip")
    rows = torch.cat(list(loader)).numpy()
    bad = range(10 * number, 10 * number + 10)
    assert sorted(map(bytes, rows)) == sorted(map(bytes, numpy.delete(data, bad, 0)))
    errors = loader.stats().errors
    assert sorted(index for _, index, _ in errors) == list(bad)
    assert all(
        path[:40] in text and f'"x": chunk {number} is damaged: ' in text for *_, text in errors
    )


@pytest.mark.parametrize(
    "options", ({}, {"chunks": (10, 50)}, {"chunks": (10, 50), "compression": "gzip"})
)
def test_cut_while_in_use(tmp_path, options):
    path = write(tmp_path / "x.h5", x=(values((100, 50), "f4"), options))
    with h5py.File(path, "r") as file:
        found = file["x"].id
        start = found.get_chunk_info(9).byte_offset if options else found.get_offset() + 18000
    dataset = leat_data.Hdf5(path, "x")
    os.truncate(path, start + 7)
    dataset[3]
    with pytest.raises(ValueError, match="cut short"):
        dataset[99]


def test_one_chunk_is_unpacked_once_by_many_threads(tmp_path):
    """Threads that want the same chunk wait for the one that unpacks it."""
    data = values((4000, 16), "f4")
    path = write(tmp_path / "x.h5", x=(data, {"chunks": (50, 16), "compression": "gzip"}))
    dataset = leat_data.Hdf5(path, "x", cache_bytes=1)
    wrong = []

    def read(seed):
        for index in numpy.random.default_rng(seed).integers(0, 4000, 300):
            if dataset[int(index)].numpy().tobytes() != data[index].tobytes():
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_h5py_works_meanwhile(small):
    done = threading.Event()

    def work():
        while not done.is_set():
            with h5py.File(small, "r") as file:
                file["x"][3]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            assert len(leat_data.Hdf5(small, "x")) == 97
    finally:
        done.set()
        thread.join()


@pytest.mark.alone
def test_memory_stays_within_the_budget(tmp_path):
    """Some chunks of 4 MB, of which two fit."""
    data = numpy.zeros((64, 1 << 20), "u1")
    data[:, 0] = range(64)
    path = write(tmp_path / "x.h5", x=(data, {"chunks": (4, 1 << 20), "compression": "gzip"}))
    dataset = leat_data.Hdf5(path, "x", cache_bytes=9 << 20)
    for index in itertools.chain(range(64), range(64)):
        assert dataset[index][0] == index
    with open("/proc/self/status") as status:
        before = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    for index in numpy.random.default_rng(0).permutation(64):
        assert dataset[int(index)][0] == index
    with open("/proc/self/status") as status:
        after = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    assert after - before < 8 << 10


def test_an_epoch_without_libhdf5(tmp_path):
    """The library has one lock for all threads. It is asked once, when the file is opened; an epoch
    works with its code unmapped."""
    path = os.fspath(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numpy.arange(600), chunks=(50,), compression="gzip")
    run = run_script(
        """
        import ctypes, os, sys
        import leat, leat.data
        loader = leat.DataLoader(leat.data.Hdf5(sys.argv[1], "x"), 7, True, num_threads=4)
        taken = 0
        for line in open("/proc/self/maps"):
            words = line.split()
            if "libhdf5" in line and "x" in words[1]:
                start, end = (int(word, 16) for word in words[0].split("-"))
                mprotect = ctypes.CDLL(None, use_errno=True).mprotect
                taken += mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 0) == 0
        assert sorted(int(i) for batch in loader for i in batch) == list(range(600))
        print(taken > 0, flush=True)
        os._exit(0)  # what the library does at the end of the process is not of interest
        """,
        path,
    )
    assert run.communicate(timeout=300) == ("True\n", "")
