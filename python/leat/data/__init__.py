"""leat.data: datasets that leat.DataLoader reads in C.

Each is a torch dataset too: it has a length, gives a sample for an index (and a list of samples for
a list of indices), can be pickled, and gives the same values through torch's own DataLoader.

    Tensors    tensors and arrays in memory
    Npy        .npy and .npz files, memory-mapped
    Tokens     slices of one length of a flat file of tokens
    Ragged     tensors of different length in memory
    Documents  documents of a token file with a Megatron index
    Packed     documents joined and cut into rows of one length
    Hdf5       datasets of an HDF5 file
    Tar        tar shards in the layout of WebDataset
    Lmdb       values of an LMDB file
    Files      files in folders, one per sample
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

# Classes whose engine_spec() is used. A subclass may have code of the user's.
CLASSES = (Documents, Files, Hdf5, Lmdb, Npy, Packed, Ragged, Tar, Tensors, Tokens)
