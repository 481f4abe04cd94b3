"""leat's end of the wire, for tests: takes the memfds of a run and reads what is in them.

The offsets are those of src/record/layout.h. They are written out here once more, on purpose: a
layout that changes without its version fails here.
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
END, NOGRAD, ERROR, NESTED, RESERVED = 1, 2, 4, 8, 16
ROLES = ("other", "main", "worker")

MAGIC = 0x314345525441454C
RING_RECORDS = 16384
NAMES = 4096
LOADERS = NAMES + 256 * 64
RINGS = LOADERS + 64 * 320
RING_BYTES = 128 + RING_RECORDS * 32
AREA_BYTES = RINGS + 16 * RING_BYTES
STOP = 88  # offset of rec_header.stop

Record = namedtuple("Record", "kind flags id arg t0 t1 tid")
Loader = namedtuple(
    "Loader",
    "length batch_size num_workers prefetch_factor pin_memory persistent_workers iterable dataset "
    "where",
)


def _string(raw):
    return raw.split(b"\0", 1)[0].decode()


class Process:
    """One process that said hello, as far as it has got."""

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
        names, loaders, rings, closed, threads_lost, cost, stop, _ = self._unpack("IIIIQQII", 56)
        assert magic == MAGIC and version == 1
        texts = self._unpack("16s32s256s256s512s", 96)
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
            *numbers, dataset, where = self._unpack("qiiiiii96s160s", LOADERS + 320 * i)
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

    def of(self, kind, without=0):
        return [r for r in self.records if r.kind == kind and not r.flags & without]

    def batches(self):
        return self.of("fetch", without=END | ERROR)

    def spans(self, name, kind="named"):
        return [r for r in self.of(kind) if self.names[r.id] == name]

    def stop(self):
        struct.pack_into("<I", self.map, STOP, 1)


def samples(record):
    return record.arg & 0xFFFFFFFF


def iteration(record):
    return record.arg >> 32


class Receiver:
    """A listening socket, and everyone who came."""

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
                if not fds:
                    return
                magic, version, pid = struct.unpack("<QIi", data)
                assert magic == MAGIC and version == 1
                process = Process(fds[0], pid)
                self.processes.append(process)
                if self.on_hello:
                    self.on_hello(process)

    def close(self):
        """After the run: what was sent is in the backlog, and is taken before this returns."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(self.path)
            last.send(b"")
        self._thread.join(10)
        self._socket.close()

    def role(self, role):
        return [p for p in self.processes if p.role == role]

    @property
    def main(self):
        (process,) = self.role("main")
        return process
