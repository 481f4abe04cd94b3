"""Writes the LMDB files beside this one, with LMDB itself: byte k of value i is (i + k) % 256, and
key i is "%08d" % i.

python tests/data/lmdb/make.py
"""

import os
import pathlib
import shutil
import tempfile

import lmdb

HERE = pathlib.Path(__file__).parent


def key(i):
    return b"%08d" % i


def value(i, length):
    return bytes((i + k) % 256 for k in range(length))


def write(name, fill, **options):
    """fill(environment) writes; what is kept is a copy without free pages."""
    folder = tempfile.mkdtemp()
    env = lmdb.open(folder + "/written", map_size=1 << 24, max_dbs=4, **options)
    fill(env)
    os.mkdir(folder + "/copy")
    env.copy(folder + "/copy", compact=True)
    env.close()
    shutil.copyfile(folder + "/copy/data.mdb", HERE / f"{name}.mdb")
    shutil.rmtree(folder)


def small(env):
    with env.begin(write=True) as txn:
        for i in range(7):
            txn.put(key(i), value(i, 3 * i))
        txn.put(b"__len__", b"7")
        txn.put(b"00000003.note", b"no sample")


def deep(env):  # long keys: three levels of few pages
    with env.begin(write=True) as txn:
        for i in range(150):
            txn.put(key(i) + b"x" * 480, value(i, i % 13))


def big(env):  # values on overflow pages, of one page and several
    with env.begin(write=True) as txn:
        for i in range(5):
            txn.put(key(i), value(i, 1 + 2800 * i))


def named(env):
    names = [env.open_db(name) for name in (b"first", b"second")]
    with env.begin(write=True) as txn:
        for i in range(4):
            txn.put(key(i), value(i, 4), db=names[0])
            txn.put(key(i), value(i + 100, 4), db=names[1])


def duplicates(env):
    db = env.open_db(b"pairs", dupsort=True)
    with env.begin(write=True) as txn:
        for i in range(4):
            txn.put(b"key", value(i, 4), db=db)


def integers(env):
    db = env.open_db(b"numbered", integerkey=True)
    with env.begin(write=True) as txn:
        for i in range(300):
            txn.put(i.to_bytes(8, "little"), value(i, 4), db=db)


def empty(env):
    pass


def main():
    for fill in (small, deep, big, named, duplicates, integers, empty):
        write(fill.__name__, fill)


if __name__ == "__main__":
    main()
