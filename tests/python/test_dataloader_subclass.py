"""A subclass of a dataset class is the user's code: its __getitem__, __getitems__ and __len__ are
called, under leat.DataLoader as under torch's, and plan() says why it runs through Python."""

import io
import tarfile

import numpy
import pytest
import torch
from loader_kit import leat, leat_data, megatron_documents
from torch.utils.data import TensorDataset

MARK = "changed"


def as_list(batches):
    """A collate function: lists of samples, so that samples of any type can be compared."""
    return list(batches)


def make_files(folder):
    (folder / "f").mkdir()
    for number in range(9):
        (folder / "f" / f"{number}.txt").write_bytes(b"%d" % number)
    return leat_data.Files, (folder / "f",), {"value": "int"}


def make_npy(folder):
    numpy.save(folder / "x.npy", numpy.arange(9))
    return leat_data.Npy, (folder / "x.npy",), {}


def make_tokens(folder):
    numpy.arange(90, dtype=numpy.uint16).tofile(folder / "t.bin")
    return leat_data.Tokens, (folder / "t.bin", 10), {}


def make_documents(folder):
    megatron_documents(folder / "c", numpy.int32, [3, 5, 2, 4], [0, 1, 2, 3, 4])
    return leat_data.Documents, (folder / "c",), {}


def make_packed(folder):
    documents = make_documents(folder)
    return leat_data.Packed, (documents[0](*documents[1]), 3), {}


def make_tar(folder):
    with tarfile.open(folder / "s.tar", "w") as archive:
        for number in range(9):
            member = tarfile.TarInfo(f"{number}.cls")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"%d" % number))
    return leat_data.Tar, (folder / "s.tar",), {}


def make_hdf5(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = numpy.arange(9)
    return leat_data.Hdf5, (folder / "x.h5", "x"), {}


def make_lmdb(folder):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(folder / "x.lmdb")) as environment, environment.begin(write=True) as t:
        for number in range(9):
            t.put(b"%d" % number, b"%d" % number)
    return leat_data.Lmdb, (folder / "x.lmdb",), {"value": "int"}


MAKERS = {
    "Files": make_files,
    "Npy": make_npy,
    "Tokens": make_tokens,
    "Documents": make_documents,
    "Packed": make_packed,
    "Tar": make_tar,
    "Hdf5": make_hdf5,
    "Lmdb": make_lmdb,
    "Tensors": lambda _: (leat_data.Tensors, (torch.arange(9),), {}),
    "Ragged": lambda _: (leat_data.Ragged, ([[1], [2, 3], [4]],), {}),
    "TensorDataset": lambda _: (TensorDataset, (torch.arange(9),), {}),
}


def own_item(base):
    class Own(base):
        def __getitem__(self, index):
            return MARK, super().__getitem__(index)

    return Own


def own_items(base):
    class Own(base):
        def __getitems__(self, indices):
            return [(MARK, base.__getitem__(self, index)) for index in indices]

    return Own


def own_items_of_items(base):
    """It calls the operator [], as a user would write it."""

    class Own(base):
        def __getitems__(self, indices):
            return [(MARK, self[index]) for index in indices]

    return Own


def own_length(base):
    class Own(base):
        def __len__(self):
            return 2

    return Own


def batches_of(kind, dataset, **options):
    return list(kind(dataset, 2, collate_fn=as_list, **options))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("change", (own_item, own_items, own_items_of_items))
def test_own_samples_of_a_subclass_are_in_the_batches(name, change, tmp_path):
    base, arguments, options = MAKERS[name](tmp_path)
    dataset = change(base)(*arguments, **options)
    plain = base(*arguments, **options)
    for kind in (torch.utils.data.DataLoader, leat.DataLoader):
        samples = [sample for batch in batches_of(kind, dataset) for sample in batch]
        assert len(samples) == len(plain)
        for (mark, value), expected in zip(samples, plain):
            assert mark == MARK and str(value) == str(expected)
    if change is own_item:
        assert dataset[1][0] == MARK and str(dataset[1][1]) == str(plain[1])
    plan = leat.DataLoader(dataset).plan()
    changed = "__getitem__" if change is own_item else "__getitems__"
    assert not plan.runs_in_c and f"with its own {changed}" in str(plan)


@pytest.mark.parametrize("name", MAKERS)
def test_own_length_of_a_subclass_is_the_length_of_the_epoch(name, tmp_path):
    base, arguments, options = MAKERS[name](tmp_path)
    dataset = own_length(base)(*arguments, **options)
    for kind in (torch.utils.data.DataLoader, leat.DataLoader):
        batches = batches_of(kind, dataset)
        assert [len(batch) for batch in batches] == [2]
        assert str(batches[0]) == str([dataset[0], dataset[1]])
    assert "own __len__" in str(leat.DataLoader(dataset).plan())


def test_own_samples_of_a_subclass_in_workers_and_by_default_collate(tmp_path):
    base, arguments, options = make_files(tmp_path)

    class Doubled(base):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

    dataset = Doubled(*arguments, **options)
    for workers in (0, 2):
        for kind in (torch.utils.data.DataLoader, leat.DataLoader):
            loader = kind(dataset, 4, num_workers=workers)
            assert [batch.tolist() for batch in loader] == [[0, 2, 4, 6], [8, 10, 12, 14], [16]]


def test_a_subclass_with_own_samples_is_not_packed(tmp_path):
    base, arguments, options = make_documents(tmp_path)
    with pytest.raises(TypeError, match="its own __getitem__"):
        leat_data.Packed(own_item(base)(*arguments, **options), 3)
