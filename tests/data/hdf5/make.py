"""Writes the .h5 files beside this one, with h5py: item k of sample i is 4 * i + k.

python tests/data/hdf5/make.py

earliest.h5 has descriptions without checksums, latest.h5 with them. Of `gzip` in latest.h5 every byte
that matters is under a checksum. index.inc says in C where their datasets lie, for test_source_hdf5.c.
"""

import pathlib

import h5py
import numpy as np
from leat.data import hdf5

HERE = pathlib.Path(__file__).parent


def main():
    rows = np.arange(96, dtype="i4").reshape(24, 4)
    for libver in ("earliest", "latest"):
        with h5py.File(HERE / f"{libver}.h5", "w", libver=libver) as file:
            file["contiguous"] = rows
            compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            compact.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple(rows.shape)
            h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32BE, space, compact)
            file["compact"][...] = rows
            file.create_dataset("chunked", data=rows, chunks=(5, 3))
            file.create_dataset(
                "gzip", data=rows, chunks=(5, 3), compression="gzip", shuffle=True, fletcher32=True
            )
            file.create_dataset(
                "group/lzf", data=rows.astype(">i4"), maxshape=(None, 4), chunks=(12, 4),
                compression="lzf", shuffle=True,
            )  # fmt: skip

    write_index()


DATASETS = ("contiguous", "compact", "chunked", "gzip", "group/lzf")


def braces(values):
    return "{" + ", ".join(map(str, values)) + "}"


def write_index():
    arrays, datasets = [], []
    for libver in ("earliest", "latest"):
        with h5py.File(HERE / f"{libver}.h5", "r") as file:
            rows = [describe(file, libver, name, arrays) for name in DATASETS]
        body = ",\n".join("    {" + ", ".join(row) + "}" for row in rows)
        datasets.append(f"static const struct leat_hdf5_dataset {libver}[] = {{\n{body}}};")
    top = "/* index.inc: made by make.py: where the datasets of the .h5 files lie. */"
    (HERE / "index.inc").write_text("\n".join([top, *arrays, *datasets]) + "\n")


def describe(file, libver, name, arrays):
    asked = hdf5._Dataset(h5py, file.filename, file, name).asked(name)
    _, _, dtype, swapped, shape, layout, offset, data, chunk, filters, _ = asked
    row = [f'.name = "{name}"', f".dtype = {dtype}", f".swapped = {int(swapped)}"]
    row += [f".dims = {len(shape)}", f".shape = {braces(shape)}", f".layout = {layout}"]
    row += [f".offset = UINT64_C({offset})"]
    array = f"{libver}_{name.replace('/', '_')}"
    if chunk:
        chunks = np.frombuffer(data, hdf5._CHUNK)
        body = braces(braces(one) for one in chunks.tolist())
        arrays.append(f"static const struct leat_hdf5_chunk {array}[] = {body};")
        row += [f".chunk = {braces(chunk)}", f".chunks = {array}", f".chunks_count = {len(chunks)}"]
    elif data:
        arrays.append(f"static const uint8_t {array}[] = {braces(data)};")
        row.append(f".data = {array}")
    if filters:
        body = braces(braces(one) for one in filters)
        arrays.append(f"static const struct leat_hdf5_filter {array}_filters[] = {body};")
        row += [f".filters = {array}_filters", f".filters_count = {len(filters)}"]
    return row


if __name__ == "__main__":
    main()
