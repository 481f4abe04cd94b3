"""leat.DataLoader against torch's: the same script with both classes gives the same batches (types,
dtypes, values), the same lengths and the same errors (type and text).

A case is a function of the class. What it returns, or raises, is written down as a plain structure
and compared. Shuffling without a generator is the one thing where leat has an order of its own;
there the script asks for the samples, not for their order.
"""

import copy
import pickle
import random
import re
import types
import warnings

import numpy
import pytest
import torch
from loader_cases import (
    ARGUMENTS,
    COMBINATIONS,
    DATASETS,
    Custom,
    Point,
    Rows,
    SizedStream,
    Stream,
    as_random,
    bad_at_five,
    bad_worker,
    double,
    gen,
    seed_of_worker,
    set_worker_variable,
    to_list,
)
from loader_kit import leat
from torch.utils.data import (
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def walk(loader, epochs=2):
    """Length and batches of some epochs."""
    out = []
    try:
        out.append(len(loader))
    except TypeError as error:
        out.append(str(error))
    for _ in range(epochs):
        out.append(list(loader))
    return out


def plain(value):
    """The value with its types, comparable by ==."""
    if isinstance(value, torch.Tensor):
        name = f"{type(value).__name__} {value.dtype} {tuple(value.shape)} {value.requires_grad}"
        return name, value.stride(), value.detach().tolist()
    if isinstance(value, numpy.ndarray):
        return f"ndarray {value.dtype}", value.tolist()
    if isinstance(value, Custom):
        return "Custom", plain(value.value)
    if isinstance(value, dict):
        return type(value).__name__, [(key, plain(entry)) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(entry) for entry in value]
    assert value is None or isinstance(value, (int, float, str, bytes, bool)), type(value)
    return type(value).__name__, value


def trace(function, kind):
    torch.manual_seed(3)
    random.seed(3)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = plain(function(kind))
        except Exception as error:
            result = type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error))
    texts = [str(w.message) for w in warned if "fork() may lead" not in str(w.message)]
    return result, texts


# Every dataset with each of these. Functions are called for the value.
for data, make in DATASETS.items():
    for name, arguments in ARGUMENTS.items():

        def run(kind, make=make, arguments=arguments):
            given = {key: v() if callable(v) else v for key, v in arguments.items()}
            return walk(kind(make(), **given))

        CASES[f"{data}-{name}"] = run

for name, arguments in COMBINATIONS.items():
    for data in ("tensors", "bare", "tuples", "stream"):

        def run(kind, data=data, arguments=arguments):
            given = {key: v() if callable(v) else v for key, v in arguments.items()}
            return walk(kind(DATASETS[data](), **given))

        # Workers are slow to start: not with every dataset.
        if not (data == "bare" and arguments.get("num_workers", 0) > 0):
            CASES[f"{name}-{data}"] = run


@case
def no_dataset(kind):
    return kind()


@case
def too_many_arguments(kind):
    return kind([1], 1, False, None, None, 0, None, False, False, 0, None, None, None, 99)


@case
def by_position(kind):
    return walk(
        kind(DATASETS["tensors"](), 4, True, None, None, 0, None, False, True, 0, None, None, gen())
    )


@case
def shuffled_samples(kind):
    loader = kind(DATASETS["tensors"](), 4, True)
    return [[sorted(torch.cat([y for _, y in loader]).tolist()), len(loader)] for _ in range(3)]


@case
def shuffled_rows(kind):
    return walk(kind(DATASETS["rows"](), 4, True))


@case
def shared_generator(kind):
    """A shared generator is left in the same state as by torch."""
    generator = gen()
    loader = kind(DATASETS["tensors"](), 4, True, generator=generator)
    out = []
    for _ in range(3):
        out.append([y for _, y in loader])
        out.append(torch.rand(2, generator=generator))
    for _, y in loader:
        out.append(y)
        break
    out.append(torch.rand(2, generator=generator))
    return out


@case
def global_generator(kind):
    out = []
    loader = kind(DATASETS["tensors"](), 4)
    for _ in range(2):
        out.append(list(loader))
        out.append(torch.rand(2))
    return out


@case
def breaking_out(kind):
    loader = kind(DATASETS["tensors"](), 4)
    out = []
    for stop in (0, 2, 5, 9):
        for number, batch in enumerate(loader):
            out.append(batch)
            if number == stop:
                break
    return out


@case
def two_at_once(kind):
    loader = kind(DATASETS["tensors"](), 4)
    first, second = iter(loader), iter(loader)
    out = [next(first), next(first), next(second), next(first), next(second)]
    return [out, list(zip(first, second)), list(loader)]


@case
def two_generators_at_once(kind):
    loader = kind(DATASETS["tensors"](), 4, True, generator=gen())
    first, second = iter(loader), iter(loader)
    return [next(first), next(second), next(first), list(second), list(first)]


@case
def nested(kind):
    loader = kind(DATASETS["bare_1d"](), 9)
    return [[a, b] for a in loader for b in loader]


@case
def over_and_again(kind):
    iterator = iter(kind(DATASETS["bare_1d"](), 10))
    out = list(iterator)
    for _ in range(2):
        try:
            next(iterator)
        except StopIteration:
            out.append("over")
    return out


@case
def after_an_error(kind):
    """The batch after a bad one is good."""
    iterator = iter(kind(Rows(12, bad_at_five), 2))
    out = []
    for _ in range(6):
        try:
            out.append(next(iterator))
        except ValueError as error:
            out.append(str(error))
    return out


@case
def after_a_bad_index(kind):
    iterator = iter(kind(DATASETS["tensors"](), 2, sampler=[0, 1, 99, 2, 3, 4]))
    out = []
    for _ in range(3):
        try:
            out.append(next(iterator))
        except IndexError as error:
            out.append(str(error))
    return out


@case
def sampler_that_fails(kind):
    def indices():
        yield from (1, 2, 3)
        raise OSError("no more indices")

    iterator = iter(kind(DATASETS["tensors"](), 2, sampler=indices()))
    out = [next(iterator)]
    try:
        next(iterator)
    except OSError as error:
        out.append(str(error))
    return out


@case
def bad_sample_in_worker(kind):
    return walk(kind(Rows(12, bad_at_five), 2, num_workers=1))


@case
def worker_does_not_start(kind):
    return walk(kind(DATASETS["rows"](), 12, num_workers=1, worker_init_fn=bad_worker))


@case
def workers_know_themselves(kind):
    return walk(kind(Rows(8, seed_of_worker), 2, num_workers=2, worker_init_fn=set_worker_variable))


@case
def worker_seeds(kind):
    return walk(kind(Rows(8, as_random), 4, num_workers=2, generator=gen()))


@case
def stream_by_workers(kind):
    return walk(kind(Stream(23), 4, num_workers=2))


@case
def stream_longer_than_it_says(kind):
    class Liar(SizedStream):
        def __len__(self):
            return 10

    return walk(kind(Liar(23), 4))


@case
def stream_shuffled(kind):
    return kind(Stream(23), 4, shuffle=True)


@case
def stream_drop(kind):
    return walk(kind(SizedStream(23), 4, drop_last=True))


@case
def set_afterwards(kind):
    """Attributes that may be set later take effect at the next iteration."""
    loader = kind(DATASETS["tensors"](), 4)
    out = [list(loader)]
    loader.collate_fn = to_list
    out.append(list(loader))
    loader.num_workers = 0
    loader.worker_init_fn = None
    loader.generator = gen()
    out.append(next(iter(loader)))
    return out


@case
def must_not_be_set(kind):
    loader = kind(DATASETS["tensors"](), 4)
    out = []
    for name in "batch_size batch_sampler sampler drop_last dataset persistent_workers".split():
        try:
            setattr(loader, name, None)
        except ValueError as error:
            out.append(str(error))
    return out


@case
def attributes(kind):
    loader = kind(DATASETS["tensors"](), 4, True, num_workers=0, drop_last=True)
    names = (
        "batch_size num_workers prefetch_factor pin_memory pin_memory_device timeout drop_last "
        "worker_init_fn persistent_workers multiprocessing_context _auto_collation _dataset_kind"
    ).split()
    kinds = [type(getattr(loader, n)).__name__ for n in ("sampler", "batch_sampler", "dataset")]
    same = loader.collate_fn is torch.utils.data.default_collate
    return [[getattr(loader, name, "absent") for name in names], kinds, same]


@case
def batch_sampler_attributes(kind):
    loader = kind([1, 2], batch_sampler=[[0], [1]])
    return [
        loader.batch_size,
        loader.drop_last,
        loader.batch_sampler,
        type(loader.sampler).__name__,
    ]


@case
def iterator_attributes(kind):
    iterator = iter(kind(DATASETS["tensors"](), 4))
    next(iterator)
    return [len(iterator), iterator._num_yielded, iter(iterator) is iterator]


@case
def iterator_is_not_pickled(kind):
    try:
        return pickle.dumps(iter(kind(DATASETS["tensors"](), 4)))
    except NotImplementedError as error:
        return error.args[0]  # the second is the class name


@case
def pickled(kind):
    loader = pickle.loads(pickle.dumps(kind(DATASETS["tensors"](), 4, True)))
    return [len(loader), sorted(torch.cat([y for _, y in loader]).tolist())]


@case
def copied(kind):
    loader = kind(DATASETS["tensors"](), 4)
    return [list(copy.copy(loader)), list(copy.deepcopy(loader))]


@case
def made_again(kind):
    """As Lightning does: the same loader with another sampler."""
    loader = kind(DATASETS["tensors"](), 4, True, drop_last=True)
    sampler = DistributedSampler(loader.dataset, 2, 1, shuffle=True)
    again = type(loader)(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    sampler.set_epoch(3)
    return walk(again)


@case
def growing_dataset(kind):
    data = [1, 2, 3]
    loader = kind(data, 2)
    out = walk(loader)
    data += [4, 5]
    return [out, walk(loader)]


@case
def tensors_replaced(kind):
    data = TensorDataset(torch.arange(5))
    loader = kind(data, 2)
    out = walk(loader)
    data.tensors = (torch.arange(7.0), torch.arange(7))
    return [out, walk(loader)]


@case
def tensors_changed_between_epochs(kind):
    x = torch.zeros(6)
    loader = kind(TensorDataset(x), 2)
    out = [list(loader)]
    x += 1
    out.append(list(loader))
    return out


@case
def batches_share_no_memory_with_the_data(kind):
    x = torch.arange(12.0)
    loader = kind(x, 4)
    for batch in loader:
        batch.mul_(-1)
    return [x, list(loader)]


@case
def subclass_of_tensor_dataset(kind):
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(double(t) for t in super().__getitem__(index))

    return walk(kind(Doubled(torch.arange(7)), 3))


@case
def tensor_dataset_with_getitems(kind):
    class Backwards(TensorDataset):
        def __getitems__(self, indices):
            return [self[-i - 1] for i in indices]

    return walk(kind(Backwards(torch.arange(7)), 3))


@case
def subset_shuffled(kind):
    return walk(kind(DATASETS["subset"](), 4, True, generator=gen()))


@case
def random_split(kind):
    parts = torch.utils.data.random_split(TensorDataset(torch.arange(23)), [15, 8], gen())
    return [walk(kind(part, 4)) for part in parts]


@case
def extended_collate(kind):
    """An extension of default_collate is used."""
    table = torch.utils.data._utils.collate.default_collate_fn_map
    before = table[torch.Tensor]
    table[torch.Tensor] = lambda batch, *, collate_fn_map=None: torch.stack(batch) + 100
    try:
        return walk(kind(DATASETS["bare"](), 10))
    finally:
        table[torch.Tensor] = before


@case
def default_device_and_dtype(kind):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return walk(kind([1.5, 2.5], 2)) + walk(kind(torch.ones(3), 2))
    finally:
        torch.set_default_dtype(before)


@case
def without_grad(kind):
    with torch.no_grad():
        first = next(iter(kind(DATASETS["grad"](), 4)))
    with torch.inference_mode():
        second = next(iter(kind(DATASETS["bare"](), 4))).is_inference()
    return [first, second]


@case
def subclassed(kind):

    class Mine(kind):
        def __init__(self, *args, **kwargs):
            self.colour = "blue"
            super().__init__(*args, **kwargs)

        def __iter__(self):
            for batch in super().__iter__():
                yield self.colour, batch

    return walk(Mine(DATASETS["bare_1d"](), 10))


@case
def generic(kind):
    return isinstance(kind[int], types.GenericAlias) or kind[int].__origin__ is kind


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    expected = trace(CASES[name], torch.utils.data.DataLoader)
    got = trace(CASES[name], leat.DataLoader)
    assert got == expected


def test_enough_cases():
    assert len(ARGUMENTS) + len(COMBINATIONS) >= 60
    assert len(CASES) >= len(ARGUMENTS) + len(COMBINATIONS)


def test_the_comparison_finds_differences():
    pairs = [
        (torch.ones(2), torch.ones(2).double()),
        (torch.ones(2), torch.tensor([1.0, 2.0])),
        (torch.ones(2, 2), torch.ones(2, 2).T.contiguous().T),
        ([torch.ones(1)], (torch.ones(1),)),
        ([1], [1.0]),
        ([1], [True]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Point(1, 2), (1, 2)),
        (numpy.ones(1), numpy.ones(1, numpy.float32)),
    ]
    for one, other in pairs:
        assert trace(lambda _, v=one: v, None) != trace(lambda _, v=other: v, None)
    assert trace(lambda kind: kind([1], 0), leat.DataLoader)[0][0] == "ValueError"
