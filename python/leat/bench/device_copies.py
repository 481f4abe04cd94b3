"""How a training brings its batches to its device: seen in its own first step, then done again.

What `pin_memory` is worth hangs on the copy that follows it, so the rows of `leat bench` are measured
with the script's own one. For the length of a step Tensor.to, cuda and copy_ are watched:

    Watch    a step's copies to a device: of which tensors of the batch, and whether the host waits
    Way      what comes of it: the device, the tensors, non_blocking
    Lane     batches on their way: the same copies, as fast as they go

Where nothing was seen (a loader without a loop, a copy made in C++) all tensors of a batch are copied,
without waiting if they are page-locked.
"""

import collections
import itertools
import sys

from leat.hooks import patch

ALL = range(1 << 16)  # places: no batch has more tensors
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
    """The tensors of a batch; a tensor's place is its number among them."""
    found = []
    each(batch, found.append)
    return found


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


class Way:
    """device        None: batches stay where they are
    non_blocking  None: not known, so as page-locked memory allows
    places        tensors of the batch that the script copies as they are; None: not known"""

    def __init__(self, device=None, non_blocking=None, places=None):
        self.device = device
        self.non_blocking = non_blocking
        self.places = places

    def move(self, batch, pinned):
        """What the script copies of a batch. Of a batch that it changes before it copies, nothing is
        known but the device: all of it, then."""
        blocks = not (pinned if self.non_blocking is None else self.non_blocking)
        return [t.to(self.device, non_blocking=not blocks) for t in self._chosen(batch)]

    def _chosen(self, batch):
        return [t for i, t in enumerate(tensors(batch)) if not self.places or i in self.places]

    def put(self, batch):
        """The batch, its tensors on the device where the script would only have copied them there: it
        then finds nothing left to copy."""
        place = itertools.count()
        places = self.places or ()
        return each(batch, lambda t: t.to(self.device) if next(place) in places else t)

    def bytes(self, batch):
        return sum(map(_bytes, self._chosen(batch))) if self.device is not None else 0


class Watch:
    """Watches from begin() to end()."""

    def __init__(self, torch):
        self.torch = torch
        self.given = []  # the tensors of each batch: a script may fetch one before it copies another
        self.copies = []  # (bytes, place or None, device, non_blocking)

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
            self._saw(tensor, result, args, kwargs)
            return result

        return move

    def _make_copy(self, original):
        def copy_(tensor, source, *args, **kwargs):
            result = original(tensor, source, *args, **kwargs)
            self._saw(source, tensor, args, kwargs)
            return result

        return copy_

    def _saw(self, source, there, args, kwargs):
        try:
            if source.device.type != "cpu" or there.device.type == "cpu":
                return
            # In every form of these calls the first truth value is non_blocking.
            given = [value for value in args if isinstance(value, bool)]
            non_blocking = bool(kwargs.get("non_blocking", given[0] if given else False))
            place = [i for batch in self.given for i, t in enumerate(batch) if t is source]
            copied = _bytes(source), place[0] if place else None, there.device, non_blocking
            self.copies.append(copied)
        except Exception:  # something that only looks like a tensor
            pass

    def way(self):
        """None: no copy was seen. The largest decides, among those of the batch's own tensors where
        there are any: beside them a script copies what is small."""
        own = [copy for copy in self.copies if copy[1] is not None]
        seen = own or self.copies
        if not seen:
            return None
        _, _, device, non_blocking = max(seen, key=lambda copy: copy[0])
        return Way(device, non_blocking, frozenset(copy[1] for copy in own))


class Lane:
    """Batches to the device. The host is at most one batch ahead, so that a copy overlaps with the
    fetch of the next batch if the script lets it, and page-locked memory does not pile up."""

    def __init__(self, torch, way):
        self.torch = torch
        self.way = way
        self.under_way = collections.deque()

    def send(self, batch, pinned):
        there = self.way.move(batch, pinned)
        if self.way.device.type != "cuda":
            return
        event = self.torch.cuda.Event()
        event.record(self.torch.cuda.current_stream(self.way.device))
        self.under_way.append((event, there, batch))
        while len(self.under_way) > _AHEAD:
            self.under_way.popleft()[0].synchronize()

    def clear(self):
        """Forgets what is under way: it holds page-locked memory and that of workers."""
        self.under_way.clear()


def synchronise(torch, device):
    """Waits for all that the device has to do, if it is one that is waited for."""
    wait = getattr(getattr(torch, device.type, None), "synchronize", None) if device else None
    if wait is not None:
        wait()


def spell(torch, device):
    """As one would write it: without its number where that is the current one."""
    if device.index is None or device.type != "cuda":
        return device.type
    current = torch.cuda.current_device() == device.index
    return "cuda" if current else f"cuda:{device.index}"
