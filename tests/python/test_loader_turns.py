"""bench/workloads/loader_turns.py: leat's hooks are present and absent when it expects it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("LEAT_BUILD", ROOT / "build")).resolve()

# A sample returns which hooks are present: the fetcher's fetch and collate function, the queue's pickler.
TURNS = f"""
import functools, itertools, json, pathlib, sys, time
from multiprocessing import queues

sys.path.insert(0, {str(ROOT / "bench" / "workloads")!r})
import loader_turns
from torch.utils.data import DataLoader, Dataset


class Tells(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        frame = sys._getframe()
        while frame.f_code.co_name != "fetch":
            frame = frame.f_back
        fetcher = frame.f_locals["self"]
        parts = type(fetcher.fetch), type(fetcher.collate_fn), queues._ForkingPickler
        return [part.__module__.split(".")[0] == "leat" for part in parts]


workers, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
begin = functools.partial(loader_turns.worker_takes_turns, folder, 1)
sampler = itertools.cycle(range(100))
loader = DataLoader(Tells(), 4, sampler=sampler, num_workers=workers, worker_init_fn=begin if workers else None)
batches, blocks = iter(loader), []
first = next(batches)  # of a worker, before its turns
if workers:
    told = list(itertools.islice(batches, 17))
    del batches
    (path,) = folder.iterdir()
    blocks = json.loads(path.read_text())
else:
    parts = loader_turns.Hooks(), loader_turns.FetcherHooks(batches._dataset_fetcher, loader.collate_fn)
    turns = loader_turns.take_turns(parts, 1, [time.perf_counter_ns], blocks)
    told = [next(batches) for _ in itertools.islice(turns, 17)]
answer = [sorted(set(itertools.chain(*(part.tolist() for part in batch)))) for batch in (first, *told)]
print(json.dumps([answer, blocks]))
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_hooks_are_removed_from_a_loader_and_restored(tmp_path, workers):
    (tmp_path / "train.py").write_text(TURNS)
    (tmp_path / "blocks").mkdir()
    words = [str(BUILD / "leat"), "run", "-q", "--logs-dir", str(tmp_path), "--",
             sys.executable, str(tmp_path / "train.py"), str(workers), str(tmp_path / "blocks")]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (first, *told), blocks = json.loads(done.stdout)
    assert first == [True]
    for begin in (0, 8):  # a turn is two batches; all hooks are present, or none
        one = told[begin]
        other = [not one[0]]
        assert told[begin : begin + 8] == [one] * 2 + [other] * 4 + [one] * 2
    assert len(blocks) >= 2 and all(ns > 0 for block in blocks for times in block for ns in times)
