"""Writes the .h5 files beside this one, with h5py: item k of sample i is 4 * i + k.

python tests/data/hdf5/make.py

earliest.h5 has descriptions without checksums, latest.h5 with them. Of `gzip` in latest.h5 every byte
that matters is under a checksum.
"""

import pathlib

import h5py
import numpy as np

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


if __name__ == "__main__":
    main()
