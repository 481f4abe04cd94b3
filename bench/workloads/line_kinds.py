"""One dataset for each kind of busy line, which measures that line itself (for bench/lines.py).

    line_kinds.py KIND SECONDS        the share of its busy line
    line_kinds.py KIND SECONDS HZ     what sampling costs, in blocks with and without it

Makes batches as a DataLoader with num_workers=0 would, but without torch, so that it runs on any
Python: with a fetcher in a file named like torch's. Each sample has a busy line, timed before and
after, and a line that does the opposite: it waits where the busy one computes, or computes where it
waits. A profiler that can sample only at certain points would favour one of the two. Prints the
true values, as JSON.
"""

import importlib.util
import io
import json
import os
import sys
import tempfile
import time

from leat import _record
from leat.profile import lines

clock = time.perf_counter_ns

FETCHER = """
class Fetcher:
    auto_collation = True

    def __init__(self, dataset):
        self.dataset = dataset
        self.collate_fn = list

    def fetch(self, index):
        data = [self.dataset[i] for i in index]
        return self.collate_fn(data)
"""


class Kind:
    """A dataset; `busy` is the time of its busy line in nanoseconds."""

    def __init__(self):
        self.busy = 0
        self.prepare()

    def prepare(self):
        pass

    def compute(self):
        return [k * k % 7 for k in range(60000)]

    def wait(self):
        time.sleep(0.004)


class Python(Kind):
    def __getitem__(self, i):
        t0 = clock()
        out = [k * k % 7 for k in range(i % 2 + 200000)]  # busy
        self.busy += clock() - t0
        self.wait()
        return len(out)


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


class Objects(Kind):
    """Calls of a class: from 3.13 on the interpreter has a frame of its own there, whose code
    object is in read-only memory. (Some of the time belongs to the line in Pair, also the user's: a
    kind for tests/python/test_lines_pythons.py, without a figure.)"""

    def __getitem__(self, i):
        t0 = clock()
        out = sum(Pair(k, k).a for k in range(i % 2 + 60000))  # busy
        self.busy += clock() - t0
        self.wait()
        return out


class Held(Kind):
    """A C call that holds the GIL."""

    def prepare(self):
        self.numbers = [k * 7919 % 100003 for k in range(60000)]

    def __getitem__(self, i):
        t0 = clock()
        out = sorted(self.numbers)  # busy
        self.busy += clock() - t0
        self.wait()
        return out[i % 2]


class Numpy(Kind):
    """A C call that releases the GIL."""

    def prepare(self):
        import numpy

        self.sort = numpy.sort
        self.numbers = numpy.random.default_rng(0).random(800000)

    def __getitem__(self, i):
        t0 = clock()
        out = self.sort(self.numbers)  # busy
        self.busy += clock() - t0
        self.compute()
        return out[i % 2]


class Operator(Kind):
    """C code without a call: an interpreter that is asked to stop does so only some lines later."""

    def prepare(self):
        import numpy

        self.numbers = numpy.random.default_rng(0).random((300, 300))

    def __getitem__(self, i):
        t0 = clock()
        out = self.numbers % 0.1 // 0.01 % 0.3 // 0.1 % 0.7 % 0.1 // 0.01 % 0.3  # busy
        self.busy += clock() - t0
        self.compute()
        return out[i % 2]


class Decode(Kind):
    def prepare(self):
        import numpy
        from PIL import Image

        self.open = Image.open
        pixels = numpy.random.default_rng(0).integers(0, 255, (400, 600, 3), "uint8")
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "JPEG", quality=90)
        self.jpeg = data.getvalue()

    def __getitem__(self, i):
        t0 = clock()
        out = self.open(io.BytesIO(self.jpeg)).convert("RGB")  # busy
        self.busy += clock() - t0
        self.compute()
        return out.size[i % 2]


class Sleep(Kind):
    def __getitem__(self, i):
        t0 = clock()
        time.sleep(0.012)  # busy
        self.busy += clock() - t0
        self.compute()
        return i


class Read(Kind):
    """A file that is not in the page cache. With a fast disk, most of its time is copying."""

    def prepare(self):
        self.file = tempfile.TemporaryFile(dir=os.getcwd())
        self.file.write(os.urandom(1 << 20) * 32)
        self.file.flush()
        os.fsync(self.file.fileno())

    def __getitem__(self, i):
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        t0 = clock()
        out = os.pread(self.file.fileno(), 32 << 20, 0)  # busy
        self.busy += clock() - t0
        self.compute()
        return out[i % 2]


KINDS = {kind.__name__.lower(): kind for kind in Kind.__subclasses__()}


def make_fetcher(dataset):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "torch", "utils", "data", "_utils", "fetch.py")
        os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(FETCHER)
        spec = importlib.util.spec_from_file_location("fetch", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module.Fetcher(dataset)


def busy_line(kind):
    """The number of the line of the class that ends with "# busy"."""
    with open(__file__) as file:
        text = file.read().splitlines()
    start = text.index(next(x for x in text if x.startswith(f"class {kind.__name__}(")))
    return next(i + 1 for i in range(start, len(text)) if text[i].endswith("# busy"))


def share(dataset, fetcher, seconds):
    """With the line profiler; what it found is in the shared memory."""
    sampled = lines.sample(100)
    dataset.busy = 0
    begin, samples = clock(), 0
    while clock() - begin < seconds * 1e9:
        fetcher.fetch([samples + k for k in range(4)])
        samples += 4
    true = dataset.busy / (clock() - begin)
    return {"line": busy_line(type(dataset)), "true": true, "sampled": sampled}


def profiler_cpu_ns():
    """CPU time of the profiler's thread; 0 if there is none."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                if comm.read() == "leat-lines\n":
                    with open(f"/proc/self/task/{task}/schedstat") as stat:
                        total = max(total, int(stat.read().split()[0]))
        except OSError:
            pass  # it has just ended
    return total


def block(fetcher, hz):
    """(nanoseconds, CPU nanoseconds) of a sample, and the CPU share of the profiler's thread."""
    if hz:
        lines.sample(hz)
    for i in range(3):  # new code is described
        fetcher.fetch([i + k for k in range(4)])
    begin, cpu, sampler, samples = clock(), time.thread_time_ns(), profiler_cpu_ns(), 0
    while clock() - begin < 0.3e9:
        fetcher.fetch([samples + k for k in range(4)])
        samples += 4
    wall, cpu = clock() - begin, time.thread_time_ns() - cpu
    sampler = profiler_cpu_ns() - sampler if hz else 0
    _record.stop_lines()
    time.sleep(0.03)  # its thread ends
    return wall / samples, cpu / samples, sampler / wall


def cost(fetcher, seconds, hz):
    begin, pairs = clock(), []
    while clock() - begin < seconds * 1e9:
        order = (0, hz) if len(pairs) % 2 else (hz, 0)
        blocks = {rate: block(fetcher, rate) for rate in order}
        pairs.append(blocks[0] + blocks[hz])
    return {"pairs": pairs}


def main():
    dataset = KINDS[sys.argv[1]]()
    fetcher = make_fetcher(dataset)
    _record.open()
    _record.role(_record.ROLE_MAIN)
    _record.time_fetcher(fetcher, len, 0, False, False)
    seconds = float(sys.argv[2])
    if len(sys.argv) > 3:
        print(json.dumps(cost(fetcher, seconds, float(sys.argv[3]))))
    else:
        print(json.dumps(share(dataset, fetcher, seconds)))


if __name__ == "__main__":
    main()
