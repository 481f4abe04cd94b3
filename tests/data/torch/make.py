"""Writes the .pt files beside this one, with torch itself, and the corpus of the fuzz target "codec":
item k of a tensor is k. `view` holds items 4 to 7 of a storage of 12.

python tests/data/torch/make.py
"""

import collections
import io
import pathlib

import numpy
import torch

HERE = pathlib.Path(__file__).parent
CORPUS = HERE.parent.parent / "fuzz" / "corpus" / "codec"
TYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()
KINDS = {"bytes": 0, "array": 1, "npy": 2, "torch": 3, "decimal": 4}


def save(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def pair(name, kind, variable, first, second):
    """What fuzz_codec.c reads: kind, variable, the length of the first value, both values."""
    head = bytes([KINDS[kind], variable]) + len(first).to_bytes(2, "little")
    (CORPUS / name).write_bytes(head + first + second)


def main():
    rows = torch.arange(12).reshape(3, 4)
    for name in TYPES:
        (HERE / f"{name}.pt").write_bytes(save(rows.to(getattr(torch, name))))
    floats = rows.float()
    for name, value in {
        "single": torch.tensor(7),
        "empty": torch.zeros(0, 4),
        "long": torch.arange(70000, dtype=torch.uint8)[:300].clone(),
        "deep": torch.arange(24.0).reshape(1, 2, 3, 4, 1),
        "view": floats.flatten()[4:8],
        "turned": floats.t(),
        "parameter": torch.nn.Parameter(floats),
        "gradient": floats.clone().requires_grad_(),
        "dict": collections.OrderedDict(x=floats),
        "list": [floats],
    }.items():
        (HERE / f"{name}.pt").write_bytes(save(value))
    torch.save(floats, HERE / "legacy.pt", _use_new_zipfile_serialization=False)

    array = rows.int().numpy()
    pair("bytes", "bytes", 0, b"", b"any bytes")
    pair("array", "array", 0, b"", array.tobytes())
    pair("array_variable", "array", 1, b"", array.tobytes())
    pair("decimal", "decimal", 0, b"", b"-1234\n")
    pair("npy", "npy", 0, npy(array), npy(array + 1))
    pair("npy_variable", "npy", 1, npy(array), npy(array[:1]))
    pair("npy_fortran", "npy", 0, npy(array), npy(numpy.asfortranarray(array)))
    pair("npy_big", "npy", 1, npy(array.astype(">i4")), npy(array.astype(">i4")))
    pair("torch", "torch", 0, save(floats), save(floats + 1))
    pair("torch_variable", "torch", 1, save(floats), save(floats[:1].clone()))
    pair("torch_untyped", "torch", 0, save(rows.to(torch.uint16)), save(rows.to(torch.uint16)))
    pair("torch_view", "torch", 1, save(floats), save(floats[1:]))


if __name__ == "__main__":
    main()
