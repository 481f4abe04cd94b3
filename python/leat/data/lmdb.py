"""leat.data.Lmdb."""

import os

from leat import _engine
from leat.data.values import Value, Values

# What writers of data sets put beside the samples.
NO_SAMPLES = (b"__len__", b"__keys__", b"length", b"num-samples", b"num_samples")


class Lmdb(Values):
    """The values of an LMDB file, one per sample, in LMDB's order of keys.

    Lmdb("train.lmdb", value=("float32", (3, 32, 32)))    a sample is a tensor
    path    the folder with data.mdb, or the file itself
    value   what a value is: "bytes", "str", "int", "npy", "torch", or a type and a shape; a first
            dimension of None differs from sample to sample
    keys    False; or "bytes", "str", "int": samples are then (key, value). True is "bytes"
    db      the name of a database inside of the file
    skip    keys that are no samples; those that are not there do no harm

    Keys in ASCII of one width ("00000042") or big endian come in the order of their numbers; others
    in that of their bytes. The file is opened read-only and without a lock: a writer that ends a
    transaction meanwhile makes reading fail. liblmdb trusts its files: a damaged one can crash the
    process or give wrong bytes.
    """

    def __init__(self, path, value="bytes", *, keys=False, db=None, skip=NO_SAMPLES):
        self.path = os.fspath(path)
        self.db = db.decode() if isinstance(db, bytes) else db
        self.skip = tuple(key.encode() if isinstance(key, str) else bytes(key) for key in skip)
        self.values = [Value(value)]
        if keys:
            self.values.insert(0, Value("bytes" if keys is True else keys))
            self.kind = tuple
        self._open()

    def _make_source(self):
        key = self.values[0].codec if self.kind else None
        path = os.fsencode(self.path)
        return _engine.source_lmdb(path, self.db, self.values[-1].codec, key, self.skip)
