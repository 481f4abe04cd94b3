"""Samples that differ in length: leat.Pad and leat.Concat give the same batches to torch's
DataLoader and to leat's, whose engine then makes them; what cannot be put together is torch's own
error."""

import collections
import copy
import io
import itertools
import pickle
import tarfile

import numpy
import pytest
import torch
from loader_kit import leat, leat_data
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

COUNT = 43
Point = collections.namedtuple("Point", "x y")


def lengths(longest=7, count=COUNT):
    return [(i * 5 + i // 7) % (longest + 1) for i in range(count)]


def rows(dtype=torch.int64, shape=(), longest=7):
    """One tensor per sample, of different lengths and values."""
    items = itertools.count(1)
    made = []
    for length in lengths(longest):
        size = [length, *shape]
        numbers = [next(items) for _ in range(int(numpy.prod(size)))]
        made.append(torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(size))
    return made


def ragged(**named):
    return leat_data.Ragged(**named)


DATASETS = {
    "alone": lambda: leat_data.Ragged(rows()),
    "floats": lambda: leat_data.Ragged(rows(torch.float32, (3,))),
    "halves": lambda: leat_data.Ragged(rows(torch.float16, (2, 2))),
    "bytes": lambda: leat_data.Ragged(rows(torch.uint8)),
    "complex": lambda: leat_data.Ragged(rows(torch.complex64)),
    "bools": lambda: leat_data.Ragged(rows(torch.bool)),
    "short": lambda: leat_data.Ragged(rows(torch.int16, longest=1)),
    "pair": lambda: leat_data.Ragged(rows(), torch.arange(COUNT)),
    "named": lambda: leat_data.Ragged(x=rows(), y=torch.arange(COUNT), z=rows(torch.float64, (2,))),
    "beside": lambda: leat_data.Ragged(rows(), torch.rand(COUNT, 3, 2)),
    "fixed": lambda: leat_data.Tensors(torch.rand(COUNT, 5), torch.arange(COUNT)),
    "tensors": lambda: TensorDataset(torch.rand(COUNT, 5, 2)),
    "subset": lambda: Subset(leat_data.Ragged(rows()), list(range(0, COUNT, 2))),
}
LAYOUTS = {
    "pad": lambda: leat.Pad(),
    "pad-one": lambda: leat.Pad(padding_value=1, pad_to_multiple_of=4),
    "pad-mask": lambda: leat.Pad(return_lengths=False, return_mask=True),
    "pad-cut": lambda: leat.Pad(max_length=3, return_mask=True),
    "pad-cut-wide": lambda: leat.Pad(padding_value=1, max_length=3, pad_to_multiple_of=8),
    "pad-bare": lambda: leat.Pad(return_lengths=False),
    "concat": lambda: leat.Concat(),
    "concat-cut": lambda: leat.Concat(max_length=2, return_offsets=True),
    "concat-bare": lambda: leat.Concat(return_lengths=False),
}


def plain(value):
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.stride(), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, plain(entry)) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(entry) for entry in value]
    assert isinstance(value, (int, float, str, bytes)), type(value)
    return type(value).__name__, value


def both(dataset, **arguments):
    """Two epochs of batches of leat.DataLoader, made in C, and of torch's DataLoader."""
    told = [leat.DataLoader(dataset, **arguments)]
    assert told[0].plan().runs_in_c, str(told[0].plan())
    torch_loader = DataLoader(dataset, **arguments)
    torch.manual_seed(1)
    expected = [plain(batch) for _ in range(2) for batch in torch_loader]
    torch.manual_seed(1)
    got = [plain(batch) for _ in range(2) for batch in told[0]]
    return got, expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("data", DATASETS)
def test_same(data, layout):
    got, expected = both(DATASETS[data](), batch_size=5, collate_fn=LAYOUTS[layout]())
    assert got == expected
    assert len(got) > 8


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 4, "drop_last": True},
        {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(5)},
        {"batch_sampler": [[0], [5, 4, 3], [1, 1], list(range(40))]},
        {"batch_size": 4, "sampler": [3, 42, 0, 7, 7]},
        {"batch_size": 100},
        {"batch_size": 4, "num_workers": 1},
    ],
    ids=["drop_last", "generator", "batch_sampler", "sampler", "large", "workers"],
)
def test_same_with(arguments):
    if "generator" in arguments:  # each loader has its own generator
        arguments = {**arguments, "generator": torch.Generator().manual_seed(5)}
        other = {**arguments, "generator": torch.Generator().manual_seed(5)}
    else:
        other = arguments
    dataset, layout = DATASETS["named"](), leat.Pad(padding_value=-1, return_mask=True)
    loader = leat.DataLoader(dataset, collate_fn=layout, **arguments)
    assert loader.plan().runs_in_c
    got = [plain(batch) for batch in loader]
    assert got == [plain(batch) for batch in DataLoader(dataset, collate_fn=layout, **other)]


@pytest.mark.parametrize("fields", [("x", "z"), ["x", "y", "z"]])
def test_chosen_fields(fields):
    layout = leat.Pad(fields=fields)
    got, expected = both(DATASETS["named"](), batch_size=5, collate_fn=layout)
    assert got == expected


def test_chosen_positions():
    got, expected = both(DATASETS["beside"](), batch_size=5, collate_fn=leat.Pad(fields=[0]))
    assert got == expected
    assert len(got[0][1]) == 3  # rows, their lengths, the other field


def test_left_out_fields_run_through_torch():
    loader = leat.DataLoader(DATASETS["named"](), 5, collate_fn=leat.Pad(fields="x"))
    assert not loader.plan().runs_in_c
    assert "leaves out fields" in str(loader.plan())
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(iter(loader))


@pytest.mark.parametrize("data", ["alone", "named", "subset"])
def test_without_pad_or_concat_the_error_is_that_of_torch(data):
    dataset = DATASETS[data]()
    loader = leat.DataLoader(dataset, 5)
    assert not loader.plan().runs_in_c
    assert "leat.Pad" in str(loader.plan())
    for kind in (DataLoader, leat.DataLoader):
        with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
            list(kind(dataset, 5))
    got, expected = ([plain(b) for b in kind(dataset, 1)] for kind in (leat.DataLoader, DataLoader))
    assert got == expected  # a batch of one sample


def test_contents_of_a_batch():
    dataset = leat_data.Ragged(x=[[1, 2], [], [3]], y=torch.tensor([7, 8, 9]))
    batch = next(iter(leat.DataLoader(dataset, 3, collate_fn=leat.Pad(-1, return_mask=True))))
    assert list(batch) == ["x", "x_lengths", "x_mask", "y"]
    assert batch["x"].tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert batch["x_lengths"].tolist() == [2, 0, 1]
    assert batch["x_mask"].tolist() == [[True, True], [False, False], [True, False]]
    batch = next(iter(leat.DataLoader(dataset, 3, collate_fn=leat.Concat(return_offsets=True))))
    assert list(batch) == ["x", "x_lengths", "x_offsets", "y"]
    assert batch["x"].tolist() == [1, 2, 3]
    assert batch["x_offsets"].tolist() == [0, 2, 2, 3]


def test_plan_repr_and_pickle():
    loader = leat.DataLoader(DATASETS["alone"](), 5, collate_fn=leat.Pad(0, pad_to_multiple_of=8))
    assert "Pad(pad_to_multiple_of=8)" in str(loader.plan())
    assert repr(leat.Pad()) == "Pad()"
    assert (
        repr(leat.Concat(max_length=3, return_offsets=True))
        == "Concat(max_length=3, return_offsets=True)"
    )
    for layout in (leat.Pad(2, 8, 3, False, True, "x"), leat.Concat(3, False, True, [1])):
        assert repr(pickle.loads(pickle.dumps(layout))) == repr(layout)
        assert repr(copy.copy(layout)) == repr(layout)


class Samples(Dataset):
    """A dataset in Python, of any structure."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.make(index)


def collated(make, layout):
    return next(iter(DataLoader(Samples(make), 3, collate_fn=layout)))


def test_structures_of_a_python_dataset():
    def nested(i):
        return {"a": (torch.ones(i), i), "b": [b"x" * i, "y"], "c": numpy.arange(i), "d": 2.5}

    batch = collated(nested, leat.Pad())
    assert list(batch) == ["a", "b", "c", "c_lengths", "d"]
    assert batch["a"][0].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert [part.tolist() for part in batch["a"][1:]] == [[0, 1, 2], [0, 1, 2]]
    assert batch["b"] == [[b"", b"x", b"xx"], ["y", "y", "y"]]
    assert batch["c"].tolist() == [[0, 0], [0, 0], [0, 1]]
    assert batch["d"].dtype == torch.float64

    def point(i):
        return Point(torch.ones(i), i)

    assert type(collated(point, leat.Pad(return_lengths=False))) is Point
    assert type(collated(point, leat.Pad())) is list
    loader = leat.DataLoader(Samples(point), 3, collate_fn=leat.Pad())
    assert not loader.plan().runs_in_c
    assert plain(next(iter(loader))) == plain(collated(point, leat.Pad()))


@pytest.mark.parametrize("kind", (DataLoader, leat.DataLoader))
@pytest.mark.parametrize(
    "layout", (leat.Pad(pad_to_multiple_of=4), leat.Pad(max_length=1), leat.Concat())
)
def test_samples_that_require_grad(layout, kind):
    """The batch requires grad, as with default_collate; added tensors do not."""
    weight = torch.tensor(3.0, requires_grad=True)
    for dataset in (Samples(lambda i: torch.ones(i) * weight), Samples(lambda i: weight * i)):
        batch = next(iter(kind(dataset, 3, collate_fn=layout)))
        batch, added = batch if isinstance(batch, list) else (batch, weight.detach())
        assert batch.requires_grad and not added.requires_grad
        weight.grad = None
        batch.sum().backward()
        assert weight.grad.item() == batch.sum().item() / 3


def test_gradients_reach_the_samples():
    leaves = [torch.ones(i, requires_grad=True) for i in range(3)]
    leat.Pad()(leaves)[0].sum().backward()
    assert [leaf.grad.tolist() for leaf in leaves] == [[], [1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "layout", "said"),
    [
        (lambda i: torch.ones(2, i), leat.Pad(), "first dimension only"),
        (lambda i: torch.ones(i, dtype=[torch.int8, torch.int16][i % 2]), leat.Pad(), "types"),
        (
            lambda i: {"x": torch.ones(i), "x_lengths": i},
            leat.Pad(),
            "already have a field x_lengths",
        ),
        (
            lambda i: torch.ones(i, dtype=torch.int8),
            leat.Pad(128),
            "int8 cannot be padded with 128",
        ),
        (
            lambda i: torch.ones(i, dtype=torch.int8),
            leat.Pad(0.5),
            "int8 cannot be padded with 0.5",
        ),
        (lambda i: torch.ones(i).half(), leat.Pad(1e5), "float16 cannot be padded"),
    ],
)
def test_invalid_samples(make, layout, said):
    with pytest.raises(ValueError, match=said):
        collated(make, layout)


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.uint8, -1), (torch.int64, 0.5), (torch.float16, 1e5)]
)
def test_a_padding_value_that_the_type_cannot_hold(dtype, value):
    dataset = leat_data.Ragged(rows(dtype))
    for kind in (DataLoader, leat.DataLoader):
        with pytest.raises(ValueError, match="cannot be padded with"):
            list(kind(dataset, 5, collate_fn=leat.Pad(value)))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(float("-inf"), torch.float32), (float("nan"), torch.float64), (-100, torch.bfloat16)]
    + [(0.1, torch.float16), (2051, torch.float16), (6e-8, torch.float16), (0.1, torch.bfloat16)]
    + [(2, torch.bool), (-(1 << 53), torch.int64), (1e300, torch.complex128), (True, torch.int8)],
)
def test_padding_values_are_converted_as_by_torch(value, dtype):
    samples = [torch.ones(2, dtype=dtype), torch.ones(5, dtype=dtype)]
    loaders = [
        kind(leat_data.Ragged(samples), 2, collate_fn=leat.Pad(value))
        for kind in (leat.DataLoader, DataLoader)
    ]
    assert loaders[0].plan().runs_in_c
    got, expected = (next(iter(loader))[0] for loader in loaders)
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize(
    "arguments",
    [
        {"pad_to_multiple_of": 0},
        {"max_length": -1},
        {"pad_to_multiple_of": True},
        {"padding_value": 1 << 60},
    ],
)
def test_invalid_arguments(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        leat.Pad(**arguments)


def test_padding_value_must_be_a_number():
    with pytest.raises(TypeError, match="value must be a number"):
        leat.Pad("0")


def test_a_subclass_runs_through_torch():
    class Mine(leat.Pad):
        def __call__(self, samples):
            return len(samples)

    loader = leat.DataLoader(DATASETS["alone"](), 40, collate_fn=Mine())
    assert not loader.plan().runs_in_c
    assert list(loader) == [40, 3]


@pytest.mark.parametrize("layout", ["pad-one", "concat"])
def test_kept_batches_do_not_change(layout):
    """Also when batches are copied because the budget is used up."""
    dataset = leat_data.Ragged(rows(torch.float64, (40,)))
    layout = LAYOUTS[layout]()
    expected = [plain(batch) for batch in DataLoader(dataset, 4, collate_fn=layout)]
    loader = leat.DataLoader(dataset, 4, collate_fn=layout, memory_budget=120_000)
    for _ in range(3):
        kept = list(loader)
        assert [plain(batch) for batch in kept] == expected
        stats = loader.stats()
        assert 0 < stats.memory_bytes <= stats.memory_most_bytes == 120_000


def test_writing_to_a_batch_changes_nothing_else():
    values = torch.arange(1.0, 101)
    dataset = leat_data.Ragged((values, torch.tensor([0, 60, 61, 100])))
    for layout in (leat.Pad(), leat.Concat()):
        for batch in leat.DataLoader(dataset, 1, collate_fn=layout):
            batch[0].zero_()
    assert values.tolist() == list(range(1, 101))


def test_a_batch_too_large_for_the_budget():
    dataset = leat_data.Ragged([torch.zeros(10), torch.zeros(1_000_000), torch.zeros(3)])
    loader = leat.DataLoader(dataset, 1, collate_fn=leat.Pad(), memory_budget=1_000_000)
    iterator = iter(loader)
    assert next(iterator)[1].tolist() == [10]
    with pytest.raises(MemoryError, match="Batch 1 does not fit into the memory budget"):
        next(iterator)
    assert next(iterator)[1].tolist() == [3]


def test_stats_count_what_was_read():
    dataset = leat_data.Ragged(x=rows(torch.float32, (3,)), y=torch.arange(COUNT))
    loader = leat.DataLoader(dataset, 5, collate_fn=leat.Pad(pad_to_multiple_of=64))
    list(loader)
    assert loader.stats().bytes == sum(lengths()) * 12 + COUNT * 8


def test_the_layout_may_change_between_epochs():
    loader = leat.DataLoader(DATASETS["alone"](), 5, collate_fn=leat.Pad())
    reference = DataLoader(DATASETS["alone"](), 5)
    for layout in (leat.Pad(), leat.Pad(1), leat.Concat(), leat.Pad()):
        loader.collate_fn = reference.collate_fn = layout
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in reference]


def test_source_read():
    source = leat_data.Ragged(x=rows(torch.float32, (2,)), b=rows(torch.uint8)).source()
    x, b = source.read([5, 3, 5])
    expected = rows(torch.float32, (2,))
    for capsule, index in zip(x, [5, 3, 5]):
        assert torch.equal(torch.utils.dlpack.from_dlpack(capsule), expected[index])
    assert b == [bytes(rows(torch.uint8)[i].tolist()) for i in (5, 3, 5)]
    for wrong, error in (([COUNT], IndexError), ([-1], IndexError), ([], ValueError)):
        with pytest.raises(error):
            source.read(wrong)
    for wrong in (5, ["1"], [1.5]):
        with pytest.raises(TypeError):
            source.read(wrong)


@pytest.mark.parametrize("value", ["bytes", "str"])
@pytest.mark.parametrize("labels", [False, True])
def test_bytes_are_left_in_lists(tmp_path, value, labels):
    """As by default_collate, also with Pad and Concat, which are for tensors."""
    (tmp_path / "a").mkdir()
    for i, length in enumerate(lengths(count=11)):
        (tmp_path / "a" / f"{i:02}").write_bytes(b"%d" % i * length)
    dataset = leat_data.Files(tmp_path, value, labels=labels)
    for layout in (None, leat.Pad(), leat.Concat()):
        got, expected = both(dataset, batch_size=4, collate_fn=layout)
        assert got == expected


def test_files_of_different_length(tmp_path):
    for i, length in enumerate(lengths(count=11)):
        numpy.save(tmp_path / f"{i:02}.npy", numpy.arange(length, dtype=numpy.float32))
    dataset = leat_data.Files(tmp_path, ("npy", None))
    for layout in (leat.Pad(-1), leat.Concat()):
        got, expected = both(dataset, batch_size=4, collate_fn=layout)
        assert got == expected


@pytest.mark.parametrize("fields", [None, ["wave"], ["wave", "cls", "mean"]])
def test_tensors_beside_bytes(tmp_path, fields):
    with tarfile.open(tmp_path / "x.tar", "w") as shard:
        for i, length in enumerate(lengths(count=11)):
            wave = numpy.arange(length * 3, dtype=numpy.int16).tobytes()
            mean = numpy.arange(4, dtype=numpy.float32).tobytes()
            for name, value in (("txt", b"t" * i), ("wave", wave), ("cls", b"5"), ("mean", mean)):
                member = tarfile.TarInfo(f"{i:03}.{name}")
                member.size = len(value)
                shard.addfile(member, io.BytesIO(value))
    kinds = {"txt": "str", "wave": ("int16", (None, 3)), "cls": "int", "mean": ("float32", (4,))}
    dataset = leat_data.Tar(tmp_path / "x.tar", kinds)
    for layout in (
        leat.Pad(-1, return_mask=True, fields=fields),
        leat.Concat(max_length=3, fields=fields),
    ):
        got, expected = both(dataset, batch_size=4, collate_fn=layout)
        assert got == expected


def test_a_sample_outlives_its_source():
    (sample,) = leat_data.Tensors(torch.arange(10.0)).engine_spec().make_source().read([7])
    assert torch.utils.dlpack.from_dlpack(sample).tolist() == [7.0]
