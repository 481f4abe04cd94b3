"""leat.data.Tar with local shards: the same samples as WebDataset, and errors for bad shards."""

import os
import pickle
import random
import resource
import subprocess
import sys
import tarfile

import numpy
import pytest
import torch
from loader_kit import leat, leat_data
from tar_kit import (
    FORMATS,
    add,
    by_webdataset,
    members_of,
    npy,
    packed,
    same,
    write_tar,
)
from torch.utils.data import default_collate

wds = pytest.importorskip("webdataset")


def check(tar, *shards):
    """Every sample equals WebDataset's."""
    expected = by_webdataset(*shards)
    assert len(tar) == len(expected)
    assert all(same(mine, yours) for mine, yours in zip(tar, expected))
    return expected


# ---- Formats.


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_of_tarfile(tmp_path, kind):
    shards = [write_tar(tmp_path / f"s-{n}.tar", 11, 11 * n, kind) for n in range(3)]
    tar = leat_data.Tar(os.fspath(tmp_path / "s-{0..2}.tar"))
    assert len(check(tar, *shards)) == 33
    assert same(tar[-1], tar[32])
    with pytest.raises(IndexError):
        tar[33]


@pytest.mark.parametrize("kind", FORMATS)
def test_long_names(tmp_path, kind):
    folder = "/".join("x" * 40 for _ in range(3))
    path = write_tar(tmp_path / "long.tar", 5, kind=kind, name=folder + "/{:05d}")
    assert check(leat_data.Tar(path), path)[0]["__key__"].startswith("xxx")
    if kind != "ustar":
        path = write_tar(tmp_path / "longer.tar", 5, kind=kind, name=folder * 4 + "/ä{:05d}")
        check(leat_data.Tar(path), path)


@pytest.mark.parametrize("kind", ("v7", "ustar", "pax", "oldgnu", "gnu"))
def test_gnu_tar(tmp_path, kind):
    files = []
    for i in range(7):
        for extension, data in members_of(i).items():
            files.append(f"{i:03d}.{extension}")
            (tmp_path / files[-1]).write_bytes(data)
    path = os.fspath(tmp_path / "gnu.tar")
    subprocess.run(["tar", "-C", tmp_path, "-H", kind, "-cf", path, *files], check=True)
    assert len(check(leat_data.Tar(path), path)) == 7


def test_shard_writer(tmp_path):
    with wds.ShardWriter(os.fspath(tmp_path / "w-%03d.tar"), maxcount=10, verbose=0) as writer:
        for i in range(42):
            writer.write(
                {
                    "__key__": f"sample{i:04d}",
                    "npy": numpy.arange(i, i + 5),
                    "pth": torch.full((3,), float(i)),
                    "cls": i,
                    "txt": str(i),
                    "seg.png": bytes(i),
                }
            )
    shards = sorted(tmp_path.glob("*.tar"))
    check(leat_data.Tar(shards), *shards)


@pytest.mark.parametrize("compression", ("gz", "zst"))
def test_compressed(tmp_path, compression):
    path = packed(write_tar(tmp_path / "s.tar"), compression)
    tar = leat_data.Tar(path)
    assert len(check(tar, tmp_path / "s.tar")) == 11
    with open(path, "ab") as file:  # two concatenated archives are one, which ends with the first
        file.write(open(path, "rb").read())
    check(leat_data.Tar(path), tmp_path / "s.tar")


def test_sizes_in_base_256(tmp_path):
    path = write_tar(tmp_path / "s.tar", 1, kind="gnu")
    raw = bytearray(open(path, "rb").read())
    size = int(raw[124:135], 8)
    raw[124:136] = b"\x80" + size.to_bytes(11, "big")
    open(path, "wb").write(put_right(raw))
    check(leat_data.Tar(path), path)


def put_right(raw, at=0):
    raw[at + 148 : at + 156] = b" " * 8
    raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
    return raw


# ---- What is a sample.


def test_members_that_are_not_samples(tmp_path):
    def extra(tar):
        add(tar, "d", type=tarfile.DIRTYPE)
        add(tar, "d/zz.cls", type=tarfile.SYMTYPE, linkname="00001.cls")
        add(tar, "d/zy.cls", type=tarfile.LNKTYPE, linkname="d/00001.cls")
        add(tar, "readme", b"no dot")
        add(tar, ".hidden", b"x")
        add(tar, "__meta__/x.cls", b"1")
        add(tar, "__index__", b"1")

    path = write_tar(tmp_path / "s.tar", extra=extra)
    assert len(check(leat_data.Tar(path), path)) == 11


def test_a_hidden_file_in_a_folder_is_not_a_sample(tmp_path):
    # WebDataset makes a sample "d/" of it.
    path = write_tar(tmp_path / "s.tar", extra=lambda tar: add(tar, "d/.DS_Store", b"x"))
    assert len(leat_data.Tar(path)) == 11


def test_extensions_are_lower_case_and_may_have_dots(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(3):
            add(tar, f"a.b/{i}.CLS", b"4")
            add(tar, f"a.b/{i}.Left.NPY", npy(numpy.zeros(2)))
    tar = leat_data.Tar(path)
    check(tar, path)
    assert list(tar[0]) == ["__key__", "cls", "left.npy"]


def test_one_key_in_two_shards_is_two_samples(tmp_path):
    shards = [write_tar(tmp_path / f"s-{n}.tar", 1) for n in range(2)]
    assert len(check(leat_data.Tar(shards), *shards)) == 2


def test_shards_without_samples(tmp_path):
    shards = [write_tar(tmp_path / f"s-{n}.tar", n % 2, n) for n in range(5)]
    assert len(check(leat_data.Tar(shards), *shards)) == 2
    with pytest.raises(ValueError, match="not one sample"):
        leat_data.Tar(shards[0])


def test_missing_members(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(20):
            add(tar, f"{i:02d}.txt", str(i).encode())
            if i % 5 != 3:
                add(tar, f"{i:02d}.cls", str(i).encode())
    tar = leat_data.Tar(path)
    assert len(tar) == 20 and tar[4]["cls"] == 4
    with pytest.raises(ValueError, match=r"s\.tar: \"08\.cls\": it is not there"):
        tar[8]
    tar = leat_data.Tar(path, missing="skip")
    assert [sample["cls"] for sample in tar] == [i for i in range(20) if i % 5 != 3]
    assert tar[3]["__key__"] == "04"


def test_a_member_twice(tmp_path):
    def extra(tar):
        add(tar, "e.cls", b"1")
        add(tar, "e.cls", b"2")

    with pytest.raises(ValueError, match="e.cls is there twice"):
        leat_data.Tar(write_tar(tmp_path / "s.tar", extra=extra))


# ---- Fields.


def test_fields_by_name(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(6):
            add(tar, f"{i}.raw", numpy.full((2, 2), i, numpy.int16).tobytes())
            add(tar, f"{i}.var", numpy.full((i, 3), i, numpy.float32).tobytes())
            add(tar, f"{i}.npy", npy(numpy.full((i + 1,), i)))
            add(tar, f"{i}.cls", b"1")
            add(tar, f"{i}.json", b"{}")
    fields = {
        "raw": ("int16", (2, 2)),
        "var": (torch.float32, (None, 3)),
        "npy": ("npy", None),
        "cls": "str",
        "json": "bytes",
    }
    sample = leat_data.Tar(path, fields)[4]
    assert list(sample) == ["__key__", *fields]
    assert torch.equal(sample["raw"], torch.full((2, 2), 4, dtype=torch.int16))
    assert torch.equal(sample["var"], torch.full((4, 3), 4.0))
    assert torch.equal(sample["npy"], torch.full((5,), 4))
    assert sample["cls"] == "1" and sample["json"] == b"{}"
    sample["var"] += 1  # samples are writable
    assert list(leat_data.Tar(path, {"cls": "int"})[0]) == ["__key__", "cls"]


def test_invalid_fields(tmp_path):
    path = write_tar(tmp_path / "s.tar")
    for fields, error in (
        ({"jpg": "bytes"}, "No sample of .* has a member .jpg"),
        ({"cls": "jpeg"}, "cls: .* got 'jpeg'"),
        ({}, "names no field"),
        ({"txt": "npy"}, "not a .npy|npy"),
    ):
        with pytest.raises((ValueError, OSError), match=error):
            leat_data.Tar(path, fields)
    with pytest.raises(ValueError, match="missing must be"):
        leat_data.Tar(path, missing="ignore")


@pytest.mark.parametrize(
    "text",
    (
        "a-{000..012}.tar",
        "a-{8..11}.tar",
        "{a,b}/x{1..2}.tar",
        "{x,y{1..2}}",
        "{10..0..5}",
        "{c..a}",
        "a{b}c",
        "a{b",
        "a,b",
        "{,x}y",
        "{0..4..2}",
        "s3://b/{01..03}",
    ),
)
def test_braces_as_bash_expands_them(text):
    from leat.data.tar import _expanded

    said = subprocess.run(["bash", "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True)
    assert list(_expanded(text)) == said.stdout.split("\n")[:-1]


# ---- As a dataset.


@pytest.fixture
def shards(tmp_path):
    return [write_tar(tmp_path / f"s-{n}.tar", 13, 13 * n) for n in range(4)]


@pytest.mark.parametrize(
    "kind, workers",
    ((torch.utils.data.DataLoader, 0), (torch.utils.data.DataLoader, 2), (leat.DataLoader, 0)),
)
@pytest.mark.parametrize(
    "fields", (None, {"npy": "npy", "cls": "int", "txt": "str", "bin": "bytes"})
)
def test_batches_equal_those_of_webdataset(shards, kind, workers, fields):
    expected = by_webdataset(*shards)
    batches = list(kind(leat_data.Tar(shards, fields), 8, num_workers=workers))
    assert len(batches) == 7
    for n, batch in enumerate(batches):
        assert same(batch, default_collate(expected[8 * n : 8 * n + 8]))


def test_pickled(shards):
    tar = leat_data.Tar(shards)
    again = pickle.loads(pickle.dumps(tar))
    assert len(pickle.dumps(tar)) < 2000
    assert len(again) == 52 and all(same(a, b) for a, b in zip(tar, again))


@pytest.mark.parametrize("order", ("full", "quasi", "window"))
def test_every_order_has_every_sample_once(shards, order):
    tar = leat_data.Tar(shards)
    keys = {sample["__key__"]: sample for sample in by_webdataset(*shards)}
    loader = leat.DataLoader(tar, 5, shuffle=True, order=order, seed=3)
    assert "source   tar " in str(loader.plan())
    orders = []
    for _ in range(2):
        seen = []
        for batch in loader:
            for i, key in enumerate(batch["__key__"]):
                assert same(
                    {name: column[i] for name, column in batch.items()}, _wrapped(keys[key])
                )
                seen.append(key)
        assert sorted(seen) == sorted(keys)
        orders.append(seen)
    assert orders[0] != orders[1]


def _wrapped(sample):
    """A row of a batch, in which numbers are tensors."""
    return {k: torch.tensor(v) if isinstance(v, int) else v for k, v in sample.items()}


def test_bad_samples_follow_on_error(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(20):
            add(tar, f"{i:02d}.txt", str(i).encode())
            add(tar, f"{i:02d}.cls", b"seven" if i == 11 else str(i).encode())
    loader = leat.DataLoader(leat_data.Tar(path), 4, on_error="skip")
    seen = sorted(int(n) for batch in loader for n in batch["cls"])
    assert seen == [i for i in range(20) if i != 11]
    ((_, index, text),) = loader.stats().errors
    assert index == 11 and "s.tar" in text and '"11.cls"' in text
    with pytest.raises(ValueError, match="11.cls"):
        list(leat.DataLoader(leat_data.Tar(path), 4))


def test_a_shard_cut_short_while_it_is_read(shards):
    tar = leat_data.Tar(shards[:1])
    expected = list(by_webdataset(shards[0]))
    for size in range(os.path.getsize(shards[0]), 0, -512):
        os.truncate(shards[0], size)
        bad = 0
        for mine, yours in enumerate(expected):
            try:
                assert same(tar[mine], yours)
            except ValueError as error:
                assert "cut short" in str(error)
                bad += 1
    assert bad == 13


def test_memory_of_the_index(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(40_000):
            add(tar, f"{i:06d}.cls", b"1")
    script = f"""
import resource, sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(leat.__file__))!r})
from leat import _engine
import mmap
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def heap():
    return sum(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(("RssAnon",)))
before = heap()
source = _engine.source_tar(({os.fsencode(path)!r},), (), None, 0, None, 60, False, 1)
print(source.count, heap() - before)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    count, kilobytes = map(int, said.stdout.split())
    assert count == 40_000
    assert kilobytes < 40_000 * 12 / 1024 + 700  # 12 bytes per sample; stacks, arenas


# ---- Damage.


def test_a_shard_cut_short_at_any_byte_is_an_error(tmp_path):
    raw = open(write_tar(tmp_path / "s.tar", 2), "rb").read()
    end = len(raw.rstrip(b"\0"))
    end += -end % 512
    for size in (0, 1, 511, 512, 600, *range(1024, end, 512), end, end + 511):
        path = tmp_path / "cut.tar"
        path.write_bytes(raw[:size])
        with pytest.raises(ValueError, match="empty|cut short|not a tar"):
            leat_data.Tar(path)
    path.write_bytes(raw[: end + 512])  # one block of zeros ends an archive
    assert len(leat_data.Tar(path)) == 2


@pytest.mark.parametrize("compression", ("gz", "zst"))
def test_damaged_compression_is_an_error(tmp_path, compression):
    path = packed(write_tar(tmp_path / "s.tar", 20), compression)
    raw = open(path, "rb").read()
    for size in (7, 20, len(raw) // 2, len(raw) - 1):
        open(path, "wb").write(raw[:size])
        with pytest.raises(
            ValueError, match=r"s\.tar\.(gz|zst).*(cut short|damaged|cannot be read)"
        ):
            leat_data.Tar(path)
    dice, found = random.Random(5), 0
    for _ in range(200):  # the formats' checksums find changes in the data
        at = dice.randrange(12, len(raw) - 8)
        open(path, "wb").write(
            raw[:at] + bytes([raw[at] ^ (1 << dice.randrange(8))]) + raw[at + 1 :]
        )
        try:
            tar = leat_data.Tar(path)
        except ValueError as error:
            assert os.path.basename(path) in str(error)
            found += 1
        else:  # an unused bit
            check(tar, tmp_path / "s.tar")
    assert found > 170


def test_other_compression_is_named(tmp_path):
    path = tmp_path / "s.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        add(tar, "a.cls", b"1")
    with pytest.raises(ValueError, match="compressed with xz"):
        leat_data.Tar(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_mutated_shards_are_refused_or_read_as_tarfile_reads_them(tmp_path, kind):
    raw = open(write_tar(tmp_path / "s.tar", 4, kind=kind), "rb").read()
    headers = [at for at in range(0, len(raw), 512) if raw[at + 257 : at + 262] == b"ustar"]
    path = tmp_path / "mutated.tar"
    dice = random.Random(kind)
    read = refused = 0
    for _ in range(150):
        data = bytearray(raw)
        for _ in range(dice.randrange(1, 4)):
            block = dice.choice(headers)
            data[block + dice.randrange(512)] = dice.choice(
                (0, 32, 48, 55, 128, dice.randrange(256))
            )
            if dice.random() < 0.7:  # a wrong header with a good checksum
                put_right(data, block)
        path.write_bytes(data)
        fields = {"npy": "bytes", "cls": "bytes", "txt": "bytes", "bin": "bytes"}
        try:
            tar = leat_data.Tar(path, fields, missing="skip")
        except (ValueError, OSError) as error:
            assert "mutated.tar" in str(error)
            refused += 1
            continue
        expected = [
            {key: sample[key] for key in ("__key__", *fields)}
            for sample in wds.WebDataset(os.fspath(path), shardshuffle=False, empty_check=False)
            if all(field in sample for field in fields)
        ]
        assert list(tar) == expected
        read += 1
    assert read > 10 and refused > 10


def test_a_global_path_and_sparse_files_are_refused(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"path": "x.cls"}) as tar:
        add(tar, "a.cls", b"1")
    with pytest.raises(ValueError, match="one path"):
        leat_data.Tar(path)
    (tmp_path / "hole.bin").write_bytes(b"")
    os.truncate(tmp_path / "hole.bin", 1 << 20)
    for kind in ("gnu", "pax"):
        said = ["tar", "-C", tmp_path, "-H", kind, "--sparse", "-cf", path, "hole.bin"]
        subprocess.run(said, check=True)
        with pytest.raises(ValueError, match="sparse"):
            leat_data.Tar(path)


def test_opening_again_needs_no_more_descriptors(shards):
    before = len(os.listdir("/proc/self/fd"))
    tar = leat_data.Tar(shards)
    assert len(os.listdir("/proc/self/fd")) == before + 4
    del tar
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError, match="nowhere.tar"):
        leat_data.Tar([*shards, "nowhere.tar"])
    assert len(os.listdir("/proc/self/fd")) == before


def test_more_shards_than_descriptors(tmp_path):
    shards = [write_tar(tmp_path / f"s-{n:03d}.tar", 1, n) for n in range(300)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            leat_data.Tar(shards[:200])
        tar = leat_data.Tar(shards)  # descriptors are closed when there are many shards
        assert [sample["__key__"] for sample in tar] == [f"d/{n:05d}" for n in range(300)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.truncate(shards[7], 0)
    os.unlink(shards[8])
    os.replace(shards[10], shards[9])
    with pytest.raises(ValueError, match="s-007.tar.*cut short"):
        tar[7]
    assert tar[8]["cls"] == 1 and tar[9]["cls"] == 2 and tar[10]["cls"] == 3
