"""Writes the .npy files beside this one, with NumPy itself: item k of sample i is 4 * i + k.

python tests/data/npy/make.py
"""

import pathlib

import numpy as np
from numpy.lib import format as npy_format

HERE = pathlib.Path(__file__).parent
TYPES = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 >i2 >i4 >u8 >f4 >f8 >c8 >c16".split()


def main():
    rows = np.arange(24).reshape(6, 4)
    for text in TYPES:
        name = text.replace(">", "big_")
        np.save(HERE / f"{name}.npy", rows.astype(text))
    np.save(HERE / "b1.npy", rows % 2 == 1)
    np.save(HERE / "fortran.npy", np.asfortranarray(rows.astype("i4")))
    np.save(HERE / "fortran_3d.npy", np.asfortranarray(rows.astype("i4").reshape(6, 2, 2)))
    np.save(HERE / "fortran_big.npy", np.asfortranarray(rows.astype(">i4")))
    np.save(HERE / "flat.npy", np.arange(6, dtype="i8"))
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(HERE / f"version_{version[0]}.npy", "wb") as file:
            npy_format.write_array(file, rows.astype("i4"), version=version)
    pairs = np.zeros(6, dtype=[("a", "<i4"), ("b", [("c", "<f8"), ("d", "u1")], (2,))])
    pairs["a"] = np.arange(6)
    np.save(HERE / "structured.npy", pairs)
    np.save(HERE / "text.npy", np.array([f"t{i}" for i in range(6)]))
    np.save(HERE / "dates.npy", np.arange(6).astype("M8[D]"))
    np.save(HERE / "objects.npy", np.array([{}, [], 1], dtype=object))
    np.save(HERE / "scalar.npy", np.array(5))
    np.save(HERE / "empty.npy", np.zeros((0, 3), dtype="f4"))
    np.save(HERE / "no_bytes.npy", np.zeros((6, 0), dtype="f4"))


if __name__ == "__main__":
    main()
