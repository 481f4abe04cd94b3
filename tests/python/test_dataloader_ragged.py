"""leat.data.Ragged, Documents and Packed: samples of different length, and rows made of them."""

import collections
import gc
import os
import pickle
import weakref

import numpy
import pytest
import torch
from loader_kit import leat, leat_data, megatron_documents
from torch.utils.data import Dataset

Pair = collections.namedtuple("Pair", "text label")
LENGTHS = [3, 0, 5, 1, 1, 8, 0, 2, 13, 4, 0]


def samples_of(lengths=LENGTHS, dtype=torch.int64):
    return [torch.arange(100 * i, 100 * i + n, dtype=dtype) for i, n in enumerate(lengths)]


def joined(samples):
    offsets = numpy.cumsum([0, *map(len, samples)])
    return torch.cat(samples), offsets


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(map(same, one, other))


# ---- Ragged.


def ragged_kinds():
    samples = samples_of()
    values, offsets = joined(samples)
    matrix = [torch.stack([s, s + 1], 1).float() for s in samples]
    labels = numpy.arange(len(samples), dtype=numpy.int32)
    return {
        "list": (leat_data.Ragged(samples), lambda i: samples[i]),
        "offsets": (leat_data.Ragged((values, offsets)), lambda i: samples[i]),
        "arrays": (leat_data.Ragged([s.numpy() for s in samples]), lambda i: samples[i]),
        "lists": (leat_data.Ragged([s.tolist() for s in samples]), lambda i: samples[i]),
        "bytes": (
            leat_data.Ragged([s.to(torch.uint8) for s in samples]),
            lambda i: samples[i].to(torch.uint8),
        ),
        "rows": (leat_data.Ragged(matrix), lambda i: matrix[i]),
        "tuple": (
            leat_data.Ragged(samples, labels, matrix),
            lambda i: (samples[i], torch.tensor(i, dtype=torch.int32), matrix[i]),
        ),
        "named": (
            leat_data.Ragged(text=(values, torch.from_numpy(offsets)), label=labels),
            lambda i: {"text": samples[i], "label": torch.tensor(i, dtype=torch.int32)},
        ),
        "dict": (leat_data.Ragged({"x": samples}), lambda i: {"x": samples[i]}),
        "namedtuple": (
            leat_data.Ragged(Pair(samples, labels)),
            lambda i: Pair(samples[i], torch.tensor(i, dtype=torch.int32)),
        ),
    }


@pytest.mark.parametrize("name", ragged_kinds())
@pytest.mark.parametrize(
    "collate", (leat.Pad(padding_value=0), leat.Concat()), ids=("pad", "concat")
)
def test_ragged(name, collate):
    dataset, expected = ragged_kinds()[name]
    assert isinstance(dataset, Dataset) and len(dataset) == len(LENGTHS)
    for i in range(len(dataset)):
        assert same(dataset[i], expected(i)) and same(dataset[i - len(dataset)], expected(i))
    for beyond in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[beyond]
    assert dataset.lengths().tolist() == LENGTHS
    loader = leat.DataLoader(dataset, 4, collate_fn=collate)
    assert loader.plan().runs_in_c, loader.plan()
    through_torch = list(torch.utils.data.DataLoader(dataset, 4, collate_fn=collate))
    assert same(list(loader), through_torch)
    copied = pickle.loads(pickle.dumps(dataset))
    assert same(list(leat.DataLoader(copied, 4, collate_fn=collate)), through_torch)
    picked = [10, 0, 8]
    expected = list(torch.utils.data.DataLoader(dataset, 2, sampler=picked, collate_fn=collate))
    assert same(list(leat.DataLoader(dataset, 2, sampler=picked, collate_fn=collate)), expected)


def test_invalid_ragged():
    some = samples_of()
    with pytest.raises(ValueError, match="leat.data.Tensors"):
        leat_data.Ragged(torch.ones(3))
    with pytest.raises(ValueError, match="numbers of samples: .10, 11."):
        leat_data.Ragged(some, torch.ones(10))
    with pytest.raises(ValueError, match=r"sample 1 is float32\[\*\], others are int64"):
        leat_data.Ragged([some[0], torch.ones(3)])
    with pytest.raises(ValueError, match="sample 1 is"):
        leat_data.Ragged([torch.ones(2, 3), torch.ones(2, 4)])
    with pytest.raises(ValueError, match="sample 0 is a single number"):
        leat_data.Ragged([torch.tensor(1)])
    with pytest.raises(ValueError, match="no samples"):
        leat_data.Ragged([])
    with pytest.raises(TypeError, match="no field is given"):
        leat_data.Ragged()
    with pytest.raises(TypeError, match="as a list"):
        leat_data.Ragged(tuple(some))
    for offsets in ([0, 5, 3], [-1, 3], [0, 11], [[0, 1]], [0.0, 1.0], []):
        with pytest.raises(ValueError, match="offsets"):
            leat_data.Ragged((torch.ones(10), torch.tensor(offsets)))


def test_empty_samples():
    for dataset in (
        leat_data.Ragged([[], []]),
        leat_data.Ragged((torch.ones(0, 3), [0, 0, 0])),
    ):
        assert len(dataset) == 2 and len(dataset[1]) == 0
        loader = leat.DataLoader(dataset, 2, collate_fn=leat.Pad())
        assert loader.plan().runs_in_c, loader.plan()
        assert same(
            list(loader), list(torch.utils.data.DataLoader(dataset, 2, collate_fn=leat.Pad()))
        )
    none = leat_data.Ragged((torch.ones(3), [0]))
    assert len(none) == 0 and list(leat.DataLoader(none, 2, collate_fn=leat.Pad())) == []


def test_tensors_that_are_not_plain_run_through_torch():
    for values in (
        torch.ones(6, requires_grad=True),
        torch.nn.Parameter(torch.ones(6)),
        torch.ones(6, 0),
    ):
        dataset = leat_data.Ragged((values, [0, 2, 6]))
        loader = leat.DataLoader(dataset, 2, collate_fn=leat.Pad())
        assert not loader.plan().runs_in_c
        with pytest.raises(TypeError, match="field 0"):
            dataset.source()


def test_offsets_changed_later_are_an_error():
    offsets = torch.tensor([0, 3, 6])
    dataset = leat_data.Ragged((torch.arange(6), offsets))
    loader = leat.DataLoader(dataset, 2, collate_fn=leat.Pad())
    assert len(list(loader)) == 1
    offsets[1] = 1 << 40
    with pytest.raises(ValueError, match="changed while in use"):
        list(loader)


def test_a_sample_outlives_its_dataset():
    """Samples are not copied, so they must keep the tensor alive."""
    values = torch.arange(1000) + 7
    alive = weakref.ref(values)
    dataset = leat_data.Ragged((values, torch.tensor([0, 400, 1000])))
    source = dataset.source()
    kept = [torch.utils.dlpack.from_dlpack(capsule) for capsule in source.read([1])[0]]
    assert kept[0].data_ptr() == values[400:].data_ptr()  # no copy
    del values, dataset, source
    gc.collect()
    assert alive() is not None
    assert torch.equal(kept[0], torch.arange(407, 1007))
    del kept
    gc.collect()
    assert alive() is None


# ---- Documents.


@pytest.fixture(params=(numpy.uint16, numpy.int32), ids=("uint16", "int32"))
def corpus(request, tmp_path):
    """(path without ending, documents of no, one or several sequences)."""
    sequences = [4, 0, 3, 6, 1, 20, 2]
    firsts = [0, 2, 2, 4, 5, 7]
    documents = megatron_documents(tmp_path / "corpus", request.param, sequences, firsts)
    return tmp_path / "corpus", [torch.from_numpy(d.astype(numpy.int64)) for d in documents]


def test_documents(corpus):
    path, documents = corpus
    for dataset in (
        leat_data.Documents(path),
        leat_data.Documents(f"{path}.bin"),
        leat_data.Documents(path, index=f"{path}.idx"),
    ):
        assert [len(d) for d in documents] == [4, 0, 9, 1, 22] == dataset.lengths().tolist()
        assert same([dataset[i] for i in range(-5, 0)], documents)
        assert same(dataset.__getitems__([4, 0]), [documents[4], documents[0]])
        with pytest.raises(IndexError):
            dataset[5]
        loader = leat.DataLoader(dataset, 2, collate_fn=leat.Pad())
        assert loader.plan().runs_in_c, loader.plan()
        through_torch = list(torch.utils.data.DataLoader(dataset, 2, collate_fn=leat.Pad()))
        assert same(list(loader), through_torch)
        copied = pickle.loads(pickle.dumps(dataset))
        assert same(list(leat.DataLoader(copied, 2, collate_fn=leat.Pad())), through_torch)


def test_invalid_documents(corpus, tmp_path):
    path, _ = corpus
    with pytest.raises(FileNotFoundError):
        leat_data.Documents(tmp_path / "absent")
    whole = (tmp_path / "corpus.idx").read_bytes()
    (tmp_path / "corpus.idx").write_bytes(whole[:-4])
    with pytest.raises(ValueError, match="corpus.idx is cut short"):
        leat_data.Documents(path)
    (tmp_path / "corpus.idx").write_bytes(b"PK" + whole)
    with pytest.raises(ValueError, match="not an index of Megatron's"):
        leat_data.Documents(path)


@pytest.mark.parametrize("policy", ("raise", "skip", "replace"))
@pytest.mark.parametrize("packed", (False, True), ids=("documents", "packed"))
def test_documents_of_a_file_cut_short(corpus, packed, policy):
    """The last document lacks one of its 22 tokens."""
    path, documents = corpus
    dataset = leat_data.Documents(path)
    if packed:
        dataset = leat_data.Packed(dataset, 4)
    collate = None if packed else leat.Pad()
    loader = leat.DataLoader(dataset, 2, seed=1, on_error=policy, collate_fn=collate)
    whole = list(loader)  # the file is open now
    os.truncate(f"{path}.bin", os.path.getsize(f"{path}.bin") - 1)
    good, said = [], []
    iterator = iter(loader)
    for _ in whole:
        try:
            good += [next(iterator)]
        except (OSError, ValueError) as error:
            said.append(str(error))
        except StopIteration:
            break
    if policy == "raise":
        assert said and all("corpus.bin was cut short" in text for text in said)
        assert same(good, whole[: len(good)])
    else:
        assert not said
        bad = [4] if not packed else [3, 4, 5, 6, 7, 8]
        assert sorted({index for _, index, _ in loader.stats().errors}) == bad


# ---- Packed.


def packed_by_hand(documents, length, separator, pad):
    """The expected rows, made one token at a time."""
    stream = []
    for number, document in enumerate(documents):
        stream += [(token, number) for token in document.tolist()]
        if separator is not None and number + 1 < len(documents):
            stream.append((separator, number))
    rows = [stream[i : i + length] for i in range(0, len(stream), length)]
    if rows and len(rows[-1]) < length and pad is None:
        rows.pop()
    made = []
    for row in rows:
        owners = [owner for _, owner in row]
        kinds = sorted(set(owners))
        fill = length - len(row)
        made.append(
            {
                "tokens": torch.tensor([token for token, _ in row] + [pad or 0] * fill),
                "segments": torch.tensor([kinds.index(owner) for owner in owners] + [-1] * fill),
                "positions": torch.tensor(
                    [i - owners.index(owner) for i, owner in enumerate(owners)] + [0] * fill
                ),
            }
        )
    return made


@pytest.mark.parametrize("length", (1, 4, 7, 100))
@pytest.mark.parametrize("separator", (None, 50256))
@pytest.mark.parametrize("drop_last", (True, False))
def test_packed_rows_are_the_joined_documents(corpus, length, separator, drop_last):
    path, documents = corpus
    expected = packed_by_hand(documents, length, separator, None if drop_last else -5)
    given = {"separator_id": separator, "drop_last": drop_last, "padding_value": -5}
    for inner in (leat_data.Documents(path), leat_data.Ragged(documents)):
        dataset = leat_data.Packed(
            inner, length, return_segments=True, return_positions=True, **given
        )
        assert same([dataset[i] for i in range(len(dataset))], expected)
        plain = leat_data.Packed(inner, length, **given)
        assert same([plain[i] for i in range(len(plain))], [row["tokens"] for row in expected])
        if not expected:
            assert list(leat.DataLoader(dataset)) == []
            continue
        loader = leat.DataLoader(dataset, 3)
        assert loader.plan().runs_in_c, loader.plan()
        assert same(list(loader), list(torch.utils.data.DataLoader(dataset, 3)))
        copied = pickle.loads(pickle.dumps(dataset))
        assert same(list(leat.DataLoader(copied, 3)), list(loader))


def test_packed_shuffles_documents_by_seed(corpus):
    path, documents = corpus
    orders = set()
    for seed in range(20):
        dataset = leat_data.Packed(
            leat_data.Documents(path), 6, separator_id=9, seed=seed, drop_last=False
        )
        stream = torch.cat([dataset[i] for i in range(len(dataset))])
        # Every document begins with a different token.
        parts, at = [], 0
        left = {int(d[0]): d for d in documents if len(d)}
        while left:
            while int(stream[at]) not in left:
                assert int(stream[at]) == 9  # an empty document
                at += 1
            document = left.pop(int(stream[at]))
            assert torch.equal(stream[at : at + len(document)], document)
            parts.append(int(document[0]))
            at += len(document)
        orders.add(tuple(parts))
        again = leat_data.Packed(
            leat_data.Ragged(documents), 6, separator_id=9, seed=seed, drop_last=False
        )
        assert same([again[i] for i in range(len(again))], list(stream.reshape(-1, 6)))
    assert len(orders) > 10


def test_packed_rows_with_ranks_state_and_shuffle(corpus):
    path, _ = corpus
    dataset = leat_data.Packed(leat_data.Documents(path), 2, seed=3)
    rows = sorted(tuple(dataset[i].tolist()) for i in range(len(dataset)))
    had = []
    for rank in range(2):
        loader = leat.DataLoader(dataset, 2, shuffle=True, seed=1, rank=rank, world_size=2)
        iterator = iter(loader)
        had += [tuple(row) for row in next(iterator).tolist()]
        state = loader.state_dict()
    rest = leat.DataLoader(dataset, 3, shuffle=True)
    rest.load_state_dict(state)
    had += [tuple(row) for batch in rest for row in batch.tolist()]
    assert sorted(had) == rows


def test_invalid_packed(corpus):
    path, documents = corpus
    with pytest.raises(TypeError, match="Ragged and Documents can be packed, not Tensors"):
        leat_data.Packed(leat_data.Tensors(torch.ones(3)), 4)
    for wrong in (
        leat_data.Ragged([torch.ones(3)]),
        leat_data.Ragged([torch.ones(3, 2, dtype=torch.int64)]),
        leat_data.Ragged(documents, torch.ones(5)),
        leat_data.Ragged([torch.ones(3, dtype=torch.bool)]),
    ):
        with pytest.raises(TypeError, match="integers in one dimension"):
            leat_data.Packed(wrong, 4)
    with pytest.raises(ValueError, match="at least one item"):
        leat_data.Packed(leat_data.Documents(path), 0)
