"""leat.data: datasets that leat.DataLoader reads in C.

Each is a torch dataset too: it has a length, gives a sample for an index (or a list of them for
several), can be pickled, and gives the same values through torch's own DataLoader. Samples are
tensors, alone or in the structure they were given in.

    Tensors    tensors and arrays in memory
    Npy        .npy and .npz files, memory-mapped
    Tokens     slices of one length of a flat file of tokens
    Ragged     tensors of different length in memory
    Documents  those of a file of tokens with Megatron's index
    Packed     documents joined and cut into rows of one length
    Hdf5       datasets of an HDF5 file
    Tar        tar shards in the layout of WebDataset
    Lmdb       values of an LMDB file
    Files      files in folders, one a sample
"""

from leat.data.arrays import Npy, Tensors, Tokens
from leat.data.files import Files
from leat.data.hdf5 import Hdf5
from leat.data.lmdb import Lmdb
from leat.data.ragged import Documents, Packed, Ragged
from leat.data.tar import Tar

__all__ = [
    "Documents",
    "Files",
    "Hdf5",
    "Lmdb",
    "Npy",
    "Packed",
    "Ragged",
    "Tar",
    "Tensors",
    "Tokens",
]

# What loader/engine_select.py asks for engine_spec(); a subclass may have code of its own.
CLASSES = (Documents, Files, Hdf5, Lmdb, Npy, Packed, Ragged, Tar, Tensors, Tokens)
