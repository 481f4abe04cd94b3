"""How a training brings its batches to its device: watched in its first step, then repeated.

The benefit of `pin_memory` depends on the copy that follows, so the rows of `leat bench` include
the copies of the script. During one step Tensor.to, cuda and copy_ are watched:

    CopyWatch    the copies of a step: which tensors of the batch, and whether the host waits
    CopyMethod   the result: the device, the tensors, non_blocking
    Transfers    repeats the same copies, as fast as possible

If no copy was seen (a loader without a loop, a copy made in C++) all tensors of a batch are copied,
without waiting if they are page-locked.
"""

import collections
import itertools
import sys

from leat.hooks import patch

ALL = range(1 << 16)  # positions: no batch has more tensors
_AHEAD = 1  # batches the host may be ahead of the copies: one is copied while the next is fetched


def each(batch, function):
    """The same batch with `function` applied to its tensors."""
    if isinstance(batch, sys.modules["torch"].Tensor):
        return function(batch)
    if isinstance(batch, dict):
        made = {key: each(value, function) for key, value in batch.items()}
        try:
            return type(batch)(made)
        except Exception:
            return made
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(each(value, function) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(each(value, function) for value in batch)
    return batch


def tensors(batch):
    """The tensors of a batch. A tensor's position is its index among them."""
    found = []
    each(batch, found.append)
    return found


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


class CopyMethod:
    """device        None: batches are not copied
    non_blocking  None: unknown, so True for page-locked memory
    positions     of the tensors that the script copies unchanged; None: unknown"""

    def __init__(self, device=None, non_blocking=None, positions=None):
        self.device = device
        self.non_blocking = non_blocking
        self.positions = positions

    def move(self, batch, pinned):
        """Copies what the script copies of a batch: all of it, if the script changes batches before
        it copies them."""
        blocks = not (pinned if self.non_blocking is None else self.non_blocking)
        return [t.to(self.device, non_blocking=not blocks) for t in self._chosen(batch)]

    def _chosen(self, batch):
        return [
            t for i, t in enumerate(tensors(batch)) if not self.positions or i in self.positions
        ]

    def put(self, batch):
        """The batch, with those tensors on the device that the script would copy unchanged: it then
        has nothing left to copy."""
        position = itertools.count()
        positions = self.positions or ()
        return each(batch, lambda t: t.to(self.device) if next(position) in positions else t)

    def bytes(self, batch):
        return sum(map(_bytes, self._chosen(batch))) if self.device is not None else 0


class CopyWatch:
    """Records copies to a device from begin() to end()."""

    def __init__(self, torch):
        self.torch = torch
        self.given = []  # the tensors of each batch: a script may fetch one before it copies another
        self.copies = []  # (bytes, position or None, device, non_blocking)

    def begin(self, batch):
        self.given.append(tensors(batch))
        tensor = self.torch.Tensor
        patch.patch(tensor, "to", self._make_move)
        patch.patch(tensor, "cuda", self._make_move)
        patch.patch(tensor, "copy_", self._make_copy)

    def end(self):
        patch.remove(self.torch.Tensor)

    def _make_move(self, original):
        def move(tensor, *args, **kwargs):
            result = original(tensor, *args, **kwargs)
            self._add_copy(tensor, result, args, kwargs)
            return result

        return move

    def _make_copy(self, original):
        def copy_(tensor, source, *args, **kwargs):
            result = original(tensor, source, *args, **kwargs)
            self._add_copy(source, tensor, args, kwargs)
            return result

        return copy_

    def _add_copy(self, source, result, args, kwargs):
        try:
            if source.device.type != "cpu" or result.device.type == "cpu":
                return
            # In every form of these calls the first truth value is non_blocking.
            given = [value for value in args if isinstance(value, bool)]
            non_blocking = bool(kwargs.get("non_blocking", given[0] if given else False))
            position = [i for batch in self.given for i, t in enumerate(batch) if t is source]
            copied = (
                _bytes(source),
                position[0] if position else None,
                result.device,
                non_blocking,
            )
            self.copies.append(copied)
        except Exception:  # not really a tensor
            pass

    def method(self):
        """The method, or None if no copy was seen. The largest copy decides, of those of the
        batch's own tensors if there are any; other copies of a script are small."""
        own = [copy for copy in self.copies if copy[1] is not None]
        seen = own or self.copies
        if not seen:
            return None
        _, _, device, non_blocking = max(seen, key=lambda copy: copy[0])
        return CopyMethod(device, non_blocking, frozenset(copy[1] for copy in own))


class Transfers:
    """Brings batches to the device. The host is at most one batch ahead, so that a copy overlaps
    with the fetch of the next batch, and page-locked memory does not accumulate."""

    def __init__(self, torch, method):
        self.torch = torch
        self.method = method
        self.pending = collections.deque()

    def send(self, batch, pinned):
        on_device = self.method.move(batch, pinned)
        if self.method.device.type != "cuda":
            return
        event = self.torch.cuda.Event()
        event.record(self.torch.cuda.current_stream(self.method.device))
        self.pending.append((event, on_device, batch))
        while len(self.pending) > _AHEAD:
            self.pending.popleft()[0].synchronize()

    def clear(self):
        """Drops the batches on their way, which hold page-locked memory and that of workers."""
        self.pending.clear()


def synchronise(torch, device):
    """Waits until the device is idle, if it has such a function."""
    wait = getattr(getattr(torch, device.type, None), "synchronize", None) if device else None
    if wait is not None:
        wait()


def name_of(torch, device):
    """The device as a script names it: without its index if it is the current one."""
    if device.index is None or device.type != "cuda":
        return device.type
    current = torch.cuda.current_device() == device.index
    return "cuda" if current else f"cuda:{device.index}"
