"""Receives the memfds of a run, as leat does, and reads the records in them.

The offsets of src/record/layout.h are repeated here on purpose: a layout that changes without a new version number fails the tests.
"""

import mmap
import os
import socket
import struct
import threading
from collections import namedtuple

KINDS = (
    "none fetch iter h2d backward optimizer closure sync wait named compile step memory "
    "worker_fetch"
).split()
END, NOGRAD, ERROR, NESTED, RESERVED, SPLIT, RETRIES = 1, 2, 4, 8, 16, 32, 64
ROLES = ("other", "main", "worker")

MAGIC = 0x314345525441454C
LAST_WORD = b"end"  # from the receiver to itself
RING_RECORDS = 32768
NAMES = 4096
LOADERS = NAMES + 256 * 64
RINGS = LOADERS + 64 * 320
RING_BYTES = 128 + RING_RECORDS * 32
PARTS = RINGS + 16 * RING_BYTES
PART_NAMES = "sample fetch collate pickle unpickle pin idle".split()
PART_LOADERS = 16
PART_BINS = 1312
PART_BYTES = 32 + 8 * PART_BINS
LINES = PARTS + PART_LOADERS * len(PART_NAMES) * PART_BYTES
LINE_BYTES = 256
ENGINES = LINES + 512 * LINE_BYTES
ENGINE_BYTES = 216
CUDA = ENGINES + 64 * ENGINE_BYTES
CLOCK = CUDA + 3 * 18 * 24
CUDA_LINES = CLOCK + 10 * 32
READY = CUDA_LINES + 256 * 240
READY_COUNTS = 256
AREA_BYTES = READY + PART_LOADERS * READY_COUNTS * 8
STOP = 120  # offset of rec_header.stop
ENGINES_USED = 124

Part = namedtuple("Part", "n total_ns max_ns bytes bins")  # bins: {lowest value: count}
Record = namedtuple("Record", "kind flags id arg t0 t1 tid")
Line = namedtuple(
    "Line", "ns read_ns decode_ns blocked_ns samples line below loader part library file function"
)
Engine = namedtuple(
    "Engine",
    "batches samples bytes waits wait_ns help_ns order_ns read_ns layout_ns idle_ns memory_bytes "
    "threads cores ahead source order",
)
Loader = namedtuple(
    "Loader",
    "length batch_size num_workers prefetch_factor pin_memory persistent_workers iterable own "
    "engine_readable "
    "dataset where",
)


def _string(raw):
    return raw.split(b"\0", 1)[0].decode()


def _bin_floor(index):
    """The lowest value of a bin: exact below 32, then 32 bins for each power of two."""
    return index if index < 32 else (32 + index % 32) << (index // 32 - 1)


class Process:
    """The memory of one recording process."""

    def __init__(self, fd, pid):
        self.pid = pid
        self.map = mmap.mmap(fd, AREA_BYTES)
        os.close(fd)

    def _unpack(self, form, offset):
        return struct.unpack_from("<" + form, self.map, offset)

    @property
    def header(self):
        magic, version, pid, ppid, _, start = self._unpack("QIiiIQ", 0)
        role, signals, worker, rank, local, world = self._unpack("IIiiii", 32)
        names, loaders, rings, closed, threads_lost, cost = self._unpack("IIIIQQ", 56)
        worker_loader, lines, lines_lost, _, stop, _ = self._unpack("iIQ16sII", 88)
        assert magic == MAGIC and version == 11
        texts = self._unpack("16s32s256s256s512s", 132)
        keys = ("python", "torch", "exception", "missing", "devices")
        return {
            "pid": pid,
            "ppid": ppid,
            "role": ROLES[role],
            "signals": signals,
            "worker_id": worker,
            "rank": rank,
            "local_rank": local,
            "world_size": world,
            "names": names,
            "loaders": loaders,
            "rings": rings,
            "closed": closed,
            "threads_lost": threads_lost,
            "cost_ns": cost,
            "worker_loader": worker_loader,
            "lines": lines,
            "lines_lost": lines_lost,
            "stop": stop,
            **{key: _string(raw) for key, raw in zip(keys, texts)},
        }

    @property
    def role(self):
        return self.header["role"]

    @property
    def names(self):
        return [
            _string(self.map[NAMES + 64 * i : NAMES + 64 * i + 64])
            for i in range(self.header["names"])
        ]

    @property
    def loaders(self):
        out = []
        for i in range(self.header["loaders"]):
            *numbers, dataset, where = self._unpack("qiiiiiiii96s160s", LOADERS + 320 * i)
            out.append(Loader(*numbers, _string(dataset), _string(where)))
        return out

    @property
    def records(self):
        out = []
        for ring in range(self.header["rings"]):
            base = RINGS + ring * RING_BYTES
            head, lost, tid = self._unpack("QQi", base)
            assert lost == 0 and head <= RING_RECORDS
            for i in range(head):
                t0, t1, arg, id_, kind, flags = self._unpack("QQQIHH", base + 128 + 32 * i)
                assert t0 <= t1
                out.append(Record(KINDS[kind], flags, id_, arg, t0, t1, tid))
        return out

    @property
    def lines(self):
        out = []
        for i in range(self.header["lines"]):
            *numbers, part, library, file, function = self._unpack(
                "QQQQQiiIHH152s48s", LINES + i * LINE_BYTES
            )
            out.append(Line(*numbers, PART_NAMES[part], library, _string(file), _string(function)))
        return out

    @property
    def engines(self):
        """{loader: its Engine} of the loaders whose batches are made in C."""
        found = {}
        for i in range(self._unpack("I", ENGINES_USED)[0]):
            *numbers, texts_set, source, order = self._unpack(
                "11QiiiI96s16s", ENGINES + ENGINE_BYTES * i
            )
            if texts_set:
                found[i] = Engine(*numbers, _string(source), _string(order))
        return found

    def of(self, kind, without=0):
        return [r for r in self.records if r.kind == kind and not r.flags & without]

    def batches(self):
        return self.of("fetch", without=END | ERROR)

    def part(self, name, loader=0):
        """The histogram of a part. Its sums and bins are added separately and must agree."""
        place = PARTS + (loader * len(PART_NAMES) + PART_NAMES.index(name)) * PART_BYTES
        n, total, most, size = self._unpack("QQQQ", place)
        counts = self._unpack(f"{PART_BINS}Q", place + 32)
        bins = {_bin_floor(i): count for i, count in enumerate(counts) if count}
        assert sum(bins.values()) == n
        return Part(n, total, most, size, bins)

    def ready(self, loader=0):
        """{batches that were ready: requests}"""
        place = READY + loader * READY_COUNTS * 8
        counts = self._unpack(f"{READY_COUNTS}Q", place)
        return {batches: n for batches, n in enumerate(counts) if n}

    def parts(self):
        """{(loader, name): Part} of all parts that are not empty."""
        found = {}
        for loader in range(PART_LOADERS):
            for name in PART_NAMES:
                part = self.part(name, loader)
                if part.n:
                    found[loader, name] = part
        return found

    def spans(self, name, kind="named"):
        return [r for r in self.of(kind) if self.names[r.id] == name]

    def stop(self):
        struct.pack_into("<I", self.map, STOP, 1)


def samples(record):
    return record.arg & 0xFFFFFFFF


def iteration(record):
    return record.arg >> 32


class Receiver:
    """A listening socket and the processes that connected to it."""

    def __init__(self, folder, on_hello=None):
        self.path = os.path.join(str(folder), "leat.sock")
        self.processes = []
        self.on_hello = on_hello
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(self.path)
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer:
                data, fds, _, _ = socket.recv_fds(peer, 64, 1)
                if data == LAST_WORD:
                    return
                if not fds:  # it ended before it sent the memfd
                    continue
                magic, version, pid = struct.unpack("<QIi", data)
                assert magic == MAGIC and version == 11
                process = Process(fds[0], pid)
                self.processes.append(process)
                if self.on_hello:
                    self.on_hello(process)

    def close(self):
        """After the run: reads everything in the backlog, then returns."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(self.path)
            last.send(LAST_WORD)
        self._thread.join(10)
        self._socket.close()

    def role(self, role):
        return [p for p in self.processes if p.role == role]

    @property
    def main(self):
        (process,) = self.role("main")
        return process
