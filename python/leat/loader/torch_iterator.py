"""torch's own iterators, for what the engine cannot read.

Three things are added where a batch is taken: the time the consumer waited is counted, the batch is
moved to loader.device, and a loaded state is honoured. The order of a map-style dataset is resumed
by index_batches.py. An iterable dataset has no state: consumed batches are read again and
discarded.

The classes keep torch's names, which appear in profiles and messages.
"""

import time

from torch.utils.data import dataloader

_TorchSingle = dataloader._SingleProcessDataLoaderIter
_TorchMulti = dataloader._MultiProcessingDataLoaderIter


class _Counting:
    _leat_pass = None

    def _next_data(self):
        this_pass = self._leat_pass
        t0 = time.monotonic_ns()
        try:
            if this_pass.skip and self._dataset_kind == dataloader._DatasetKind.Iterable:
                skip, this_pass.skip = this_pass.skip, 0
                for _ in range(skip):
                    super()._next_data()
            data = super()._next_data()
        except StopIteration:
            this_pass.ended = True
            raise
        finally:
            this_pass.counters.wait_ns += time.monotonic_ns() - t0
        this_pass.batches += 1
        this_pass.counters.batches += 1
        return data if this_pass.mover is None else this_pass.mover(data)


class _SingleProcessDataLoaderIter(_Counting, _TorchSingle):
    pass


class _MultiProcessingDataLoaderIter(_Counting, _TorchMulti):
    pass


def iterator_over(loader):
    if loader.num_workers == 0:
        return _SingleProcessDataLoaderIter(loader)
    loader.check_worker_number_rationality()
    return _MultiProcessingDataLoaderIter(loader)
