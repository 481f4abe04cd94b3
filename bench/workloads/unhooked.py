"""Removes leat from the process it runs in, and restores it, to measure its cost within one
process.

Two processes of one program have different memory layouts, and on some machines their steps differ
by more than leat costs. In one process nothing differs but leat:

    hooks   Python's, as leat.hooks.patch knows them, and those of the optimizers
    probe   the loader has bound calls of CUDA to libleat-probe.so; the entries of the tables
    through
            which libraries call (GOT) are pointed past it, to CUDA's own functions
"""

import ctypes
import mmap
import os
import struct

import numpy

RELOCATIONS, SYMBOLS = 4, 11  # kinds of section
BINDING = (1, 6, 7)  # R_X86_64_64, GLOB_DAT, JUMP_SLOT
WRITABLE = 1 | 2  # PROT_READ | PROT_WRITE
RELOCATION = [("offset", "<u8"), ("info", "<u8"), ("addend", "<i8")]
SYMBOL = [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]  # fmt: skip
SECTION = [("name", "<u4"), ("kind", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
           ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")]  # fmt: skip


class Library:
    """A mapped library: what it defines, and what it calls of others."""

    def __init__(self, path, base):
        self.path, self.base = path, base
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        at, count = struct.unpack_from("<Q", self.data, 0x28)[0], struct.unpack_from("<H", self.data, 0x3C)[0]  # fmt: skip
        self.sections = numpy.frombuffer(self.data, SECTION, count, at)

    def read(self, section, kind):
        count = int(section["size"]) // numpy.dtype(kind).itemsize
        return numpy.frombuffer(self.data, kind, count, int(section["offset"]))

    def name(self, symbols, symbol):
        begin = int(self.sections[symbols["link"]]["offset"]) + int(symbol["name"])
        return self.data[begin : self.data.find(b"\0", begin)].decode()

    def definitions(self):
        """{name: address} of what others may call."""
        table = next(s for s in self.sections if s["kind"] == SYMBOLS)
        return {self.name(table, s): self.base + int(s["value"])
                for s in self.read(table, SYMBOL) if s["section"] and s["value"]}  # fmt: skip

    def entries(self, wanted):
        """(address of the entry, name) of those calls."""
        for section in self.sections:
            table = self.sections[section["link"]]
            if section["kind"] != RELOCATIONS or table["kind"] != SYMBOLS:
                continue
            symbols, entries = self.read(table, SYMBOL), self.read(section, RELOCATION)
            entries = entries[numpy.isin(entries["info"] & 0xFFFFFFFF, BINDING)]
            names = {}
            for number in numpy.unique(entries["info"] >> 32):
                symbol = symbols[number]
                if number and not symbol["section"] and (name := self.name(table, symbol)) in wanted:  # fmt: skip
                    names[number] = name
            for entry in entries[numpy.isin(entries["info"] >> 32, list(names))]:
                yield self.base + int(entry["offset"]), names[entry["info"] >> 32]


def mapped_libraries():
    found = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            if len(words) == 6 and words[2] == "00000000" and ".so" in words[5]:
                found.setdefault(words[5].strip(), int(words[0].split("-")[0], 16))
    return found


class Probe:
    """Make it after the first steps of the training: then the loader has bound their calls."""

    def __init__(self):
        mapped = mapped_libraries()
        probe = next((path for path in mapped if "libleat-probe" in path), None)
        if not probe:
            raise SystemExit("The probe is not in this process: run it by leat run.")
        through = {name: at for name, at in Library(probe, mapped[probe]).definitions().items()
                   if name.startswith("cu")}  # fmt: skip
        cuda = [ctypes.CDLL(path) for path in mapped
                if os.path.basename(path).startswith(("libcudart.so", "libcuda.so"))]  # fmt: skip
        self.entries = []  # (entry, address in the probe, address in CUDA)
        for path, base in mapped.items():
            if path == probe:
                continue
            for at, name in Library(path, base).entries(through):
                entry = ctypes.c_uint64.from_address(at)
                own = next((library for library in cuda if hasattr(library, name)), None)
                past = own and ctypes.cast(getattr(own, name), ctypes.c_void_p).value
                if past and entry.value in (through[name], past):
                    self.entries.append((entry, through[name], past))

    def _make_writable(self):
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        pages = {ctypes.addressof(entry) & -mmap.PAGESIZE for entry, *_ in self.entries}
        for page in pages:
            if protect(ctypes.c_void_p(page), mmap.PAGESIZE, WRITABLE):
                raise OSError(ctypes.get_errno(), "a table of calls cannot be written to")

    def put(self, there):
        self._make_writable()
        for entry, through, past in self.entries:
            entry.value = through if there else past


class Hooks:
    def __init__(self):
        from leat.hooks import patch
        from torch.optim import optimizer

        self.absent = patch._ABSENT
        self.patches = list(patch._patches)
        self.global_hooks = [(hooks, dict(hooks)) for hooks in
                             (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)]  # fmt: skip

    def put(self, there):
        for owner, attribute, wrapper, own in self.patches:
            if there or own is not self.absent:
                setattr(owner, attribute, wrapper if there else own)
            elif attribute in vars(owner):
                delattr(owner, attribute)
        for hooks, entries in self.global_hooks:
            hooks.clear()
            hooks.update(entries if there else {})


class FetcherHooks:
    """The hooks on the fetcher of one iteration."""

    def __init__(self, fetcher, collate):
        self.fetcher, self.collate = fetcher, collate
        self.out = None

    def put(self, there):
        fetcher = self.fetcher
        if there and self.out:
            fetcher.fetch, fetcher.collate_fn = self.out
            self.out = None
        elif not there and not self.out and type(fetcher.fetch).__name__ == "Fetch":
            # Otherwise leat has paused measuring for some batches.
            self.out = fetcher.fetch, fetcher.collate_fn
            del fetcher.fetch
            fetcher.collate_fn = self.collate


class Leat:
    """The hooks and the probe."""

    def __init__(self):
        self.parts = [Hooks(), Probe()]

    def put(self, there):
        for part in self.parts:
            part.put(there)
