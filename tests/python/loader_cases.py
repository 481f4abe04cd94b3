"""Datasets and arguments that test_dataloader_same.py tries with both classes.

Functions that workers of another process need are found here by their names.
"""

import collections
import os
import random

import numpy
import torch
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

Point = collections.namedtuple("Point", "x y")


def gen(seed=7):
    return torch.Generator().manual_seed(seed)


class Rows(Dataset):
    """Samples made by a function of the index."""

    def __init__(self, length, make=None):
        self.length = length
        self.make = make

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.make(index) if self.make else torch.full((3,), float(index))


class Many(Rows):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __init__(self, length, sized=False):
        self.length = length
        if sized:
            self.__class__ = SizedStream

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, self.length, step):
            yield torch.tensor([i, i * i])


class SizedStream(Stream):
    def __len__(self):
        return self.length


class Custom:
    def __init__(self, value):
        self.value = value

    def pin_memory(self):
        return self


# Functions that workers find by name.
def as_dict(i):
    return {"a": torch.tensor([i]), "b": i, "c": {"d": float(i)}}


def as_tuple(i):
    return torch.tensor([i, i]), i, float(i)


def as_list(i):
    return [torch.tensor(i), i]


def as_point(i):
    return Point(torch.ones(2) * i, i)


def as_text(i):
    return f"line {i}", b"raw"


def as_numpy(i):
    return numpy.full((2, 2), i, numpy.float32), numpy.int16(i), numpy.array(i)


def as_strings_of_numpy(i):
    return numpy.array(["a", "b"])


def as_object(i):
    return Custom(i)


def as_uneven(i):
    return torch.ones(i + 1)


def as_uneven_list(i):
    return [1] * (i + 1)


def as_none(i):
    return None


def as_bool(i):
    return i % 2 == 0


def as_ordered(i):
    return collections.OrderedDict(x=i, y=-i)


def as_mixed(i):
    return i if i % 2 else float(i)


def bad_at_five(i):
    if i == 5:
        raise ValueError("the fifth is bad")
    return i


def stop_at_three(i):
    if i == 3:
        raise StopIteration
    return i


def key_error(i):
    raise KeyError("missing\nkey")


def as_random(i):
    return random.random(), torch.rand(2), torch.utils.data.get_worker_info() is None


def seed_of_worker(i):
    info = torch.utils.data.get_worker_info()
    return info.id, info.num_workers, int(os.environ.get("LEAT_TEST_WORKER", -1))


def set_worker_variable(worker):
    os.environ["LEAT_TEST_WORKER"] = str(worker * 10)


def bad_worker(worker):
    raise RuntimeError(f"worker {worker} does not start")


def to_list(samples):
    return list(samples)


def bad_collate(samples):
    raise TypeError("cannot be collated")


def double(sample):
    return sample * 2


DATASETS = {
    "tensors": lambda: TensorDataset(torch.arange(23.0).reshape(23, 1), torch.arange(23)),
    "one_tensor": lambda: TensorDataset(torch.arange(46, dtype=torch.int16).reshape(23, 2)),
    "bare": lambda: torch.arange(46, dtype=torch.float64).reshape(23, 2),
    "bare_1d": lambda: torch.arange(23),
    "numpy": lambda: numpy.arange(46, dtype=numpy.float32).reshape(23, 2),
    "numpy_uint64": lambda: numpy.arange(46, dtype=numpy.uint64).reshape(23, 2),
    "numpy_uint64_1d": lambda: numpy.arange(23, dtype=numpy.uint64),
    "numpy_1d": lambda: numpy.arange(23, dtype=numpy.int32),
    "big_endian": lambda: numpy.arange(46, dtype=">i4").reshape(23, 2),
    "fortran": lambda: numpy.asfortranarray(numpy.arange(92).reshape(23, 2, 2)),
    "reversed": lambda: numpy.arange(46).reshape(23, 2)[::-1],
    "strided": lambda: torch.arange(92).reshape(46, 2)[::2],
    "transposed": lambda: torch.arange(46).reshape(2, 23).T,
    "expanded": lambda: torch.arange(2).expand(23, 2),
    "channels_last": lambda: (
        torch.arange(23 * 24.0).reshape(23, 2, 3, 4).to(memory_format=torch.channels_last)
    ),
    "bools": lambda: torch.arange(23) % 2 == 0,
    "half": lambda: TensorDataset(torch.arange(23).half(), torch.arange(23).bfloat16()),
    "complex": lambda: torch.arange(23).to(torch.complex64),
    "unsigned": lambda: torch.arange(23, dtype=torch.uint16).reshape(23, 1),
    "no_columns": lambda: torch.empty(23, 0),
    "grad": lambda: torch.arange(23.0, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.arange(23.0)),
    "sparse": lambda: torch.eye(23).to_sparse(),
    "list": lambda: list(range(23)),
    "strings": lambda: [f"s{i}" for i in range(23)],
    "tuple_of_tensors": lambda: (torch.ones(3), torch.zeros(3)),
    "dict": lambda: {i: float(i) for i in range(23)},
    "range": lambda: range(23),
    "rows": lambda: Rows(23),
    "many": lambda: Many(23, as_tuple),
    "dicts": lambda: Rows(23, as_dict),
    "tuples": lambda: Rows(23, as_tuple),
    "lists": lambda: Rows(23, as_list),
    "points": lambda: Rows(23, as_point),
    "texts": lambda: Rows(23, as_text),
    "numpies": lambda: Rows(23, as_numpy),
    "ordered": lambda: Rows(23, as_ordered),
    "bool_samples": lambda: Rows(23, as_bool),
    "mixed": lambda: Rows(23, as_mixed),
    "random": lambda: Rows(23, as_random),
    "numpy_strings": lambda: Rows(23, as_strings_of_numpy),
    "objects": lambda: Rows(23, as_object),
    "uneven": lambda: Rows(23, as_uneven),
    "uneven_lists": lambda: Rows(23, as_uneven_list),
    "nones": lambda: Rows(23, as_none),
    "bad_at_five": lambda: Rows(23, bad_at_five),
    "stop_at_three": lambda: Rows(23, stop_at_three),
    "key_error": lambda: Rows(23, key_error),
    "subset": lambda: Subset(TensorDataset(torch.arange(46)), list(range(0, 46, 2))),
    "concat": lambda: ConcatDataset([TensorDataset(torch.arange(11)), [(1,)] * 12]),
    "stream": lambda: Stream(23),
    "sized_stream": lambda: SizedStream(23),
    "chain": lambda: ChainDataset([Stream(11), Stream(12)]),
    "no_rows": lambda: TensorDataset(torch.empty(0, 2)),
    "no_items": lambda: [],
    "empty_stream": lambda: Stream(0),
    "nothing": lambda: None,
    "number": lambda: 5,
}

ARGUMENTS = {
    "plain": {},
    "four": {"batch_size": 4},
    "single": {"batch_size": None},
    "drop": {"batch_size": 5, "drop_last": True},
    "generator": {"batch_size": 4, "shuffle": True, "generator": gen},
}
# Single combinations, over tensors (read in C) and over rows (through torch).
COMBINATIONS = {
    "all_of_it": {"batch_size": 1000},
    "exact": {"batch_size": 23},
    "drop_all": {"batch_size": 24, "drop_last": True},
    "sampler": {"batch_size": 4, "sampler": lambda: [3, 1, 4, 1, 5, 9, 2, 6]},
    "negative": {"batch_size": 4, "sampler": lambda: [0, -1, -2]},
    "beyond": {"batch_size": 4, "sampler": lambda: [0, 1, 2, 3, 4, 23]},
    "no_indices": {"batch_size": 2, "sampler": lambda: ["a", "b"]},
    "float_indices": {"batch_size": 2, "sampler": lambda: [0.0, 1.0]},
    "bool_indices": {"batch_size": 2, "sampler": lambda: [True, False]},
    "numpy_indices": {"batch_size": 3, "sampler": lambda: numpy.array([3, 1, 4])},
    "tensor_indices": {"batch_size": 3, "sampler": lambda: torch.tensor([3, 1, 4])},
    "endless_sampler_no_len": {"batch_size": 3, "sampler": lambda: iter(range(10))},
    "empty_sampler": {"batch_size": 3, "sampler": lambda: []},
    "sampler_drop": {"batch_size": 3, "sampler": lambda: range(10), "drop_last": True},
    "sampler_single": {"batch_size": None, "sampler": lambda: [3, 1, 4]},
    "random_sampler": {
        "batch_size": 3,
        "sampler": lambda: RandomSampler(range(23), generator=gen()),
    },
    "replacement": {
        "batch_size": 3,
        "sampler": lambda: RandomSampler(range(23), True, 40, generator=gen()),
    },
    "fewer": {
        "batch_size": 3,
        "sampler": lambda: RandomSampler(range(23), num_samples=10, generator=gen()),
    },
    "more": {
        "batch_size": 3,
        "sampler": lambda: RandomSampler(range(23), num_samples=50, generator=gen()),
    },
    "global_random_sampler": {"batch_size": 3, "sampler": lambda: RandomSampler(range(23))},
    "weighted": {
        "batch_size": 4,
        "sampler": lambda: WeightedRandomSampler([1.0] * 23, 20, generator=gen()),
    },
    "subset_random": {
        "batch_size": 4,
        "sampler": lambda: SubsetRandomSampler(range(5, 15), generator=gen()),
    },
    "distributed": {"batch_size": 4, "sampler": lambda: DistributedSampler(range(23), 3, 1)},
    "batch_sampler": {"batch_sampler": lambda: BatchSampler(SequentialSampler(range(23)), 5, True)},
    "ragged": {"batch_sampler": lambda: [[1, 2], [3], [4, 5, 6, 7, 8], [9, 9, 9], [0] * 50, [1]]},
    "ragged_no_len": {"batch_sampler": lambda: iter([[1, 2], [3], [4, 5, 6]])},
    "an_empty_batch": {"batch_sampler": lambda: [[1, 2], [], [3]]},
    "tuples_of_indices": {"batch_sampler": lambda: [(1, 2), (3,)]},
    "batch_of_tensor": {"batch_sampler": lambda: [torch.tensor([1, 2]), torch.tensor([3])]},
    "workers": {"batch_size": 4, "num_workers": 2},
    "workers_shuffle": {
        "batch_size": 4,
        "num_workers": 2,
        "shuffle": True,
        "generator": gen,
        "persistent_workers": True,
    },
    "workers_prefetch": {"batch_size": 4, "num_workers": 1, "prefetch_factor": 1, "timeout": 60},
    "in_any_order": {"batch_size": 4, "num_workers": 1, "in_order": False},
    "spawned": {"batch_size": 12, "num_workers": 1, "multiprocessing_context": "spawn"},
    "pinned": {"batch_size": 4, "pin_memory": True},
    "collate_list": {"batch_size": 4, "collate_fn": lambda: to_list},
    "collate_bad": {"batch_size": 4, "collate_fn": lambda: bad_collate},
    "collate_default": {"batch_size": 4, "collate_fn": lambda: torch.utils.data.default_collate},
    "convert": {"batch_size": None, "collate_fn": lambda: list},
    "single_sliced": {"batch_size": None, "sampler": lambda: [[1, 2], [3, 4]]},
    "worker_init": {"batch_size": 4, "worker_init_fn": lambda: set_worker_variable},
    "timeout_without_workers": {"batch_size": 4, "timeout": 5},
    # The constructor refuses these.
    "zero": {"batch_size": 0},
    "below_zero": {"batch_size": -3},
    "half_a_batch": {"batch_size": 2.5},
    "true_batch": {"batch_size": True},
    "text_batch": {"batch_size": "4"},
    "drop_text": {"batch_size": 4, "drop_last": "yes"},
    "no_workers_below": {"num_workers": -1},
    "bad_timeout": {"timeout": -1},
    "prefetch_alone": {"prefetch_factor": 2},
    "prefetch_below": {"num_workers": 1, "prefetch_factor": -1},
    "persistent_alone": {"persistent_workers": True},
    "context_alone": {"multiprocessing_context": "fork"},
    "bad_context": {"num_workers": 1, "multiprocessing_context": "spoon"},
    "context_type": {"num_workers": 1, "multiprocessing_context": 7},
    "shuffle_and_sampler": {"shuffle": True, "sampler": lambda: [1]},
    "batch_sampler_and_size": {"batch_size": 2, "batch_sampler": lambda: [[1]]},
    "batch_sampler_and_shuffle": {"shuffle": True, "batch_sampler": lambda: [[1]]},
    "batch_sampler_and_sampler": {"sampler": lambda: [1], "batch_sampler": lambda: [[1]]},
    "batch_sampler_and_drop": {"drop_last": True, "batch_sampler": lambda: [[1]]},
    "single_drop": {"batch_size": None, "drop_last": True},
    "unknown": {"colour": "blue"},
    "shuffle_text": {"shuffle": "yes", "batch_size": 30, "generator": gen},
    "sampler_is_number": {"sampler": lambda: 5},
    "generator_is_text": {"shuffle": True, "generator": lambda: "seed"},
}
