"""Moves batches that torch made to a device.

To a CUDA GPU they are copied from page-locked memory on a stream of the mover's own, so that the
copy runs beside the consumer's kernels. The consumer's stream waits for the copy. Anything that is
not a plain CPU tensor is moved on the consumer's stream.
"""

import torch


def move(data, device, move_tensor=None):
    """The same structure with its tensors on the device. Values without .to() stay as they are."""
    if isinstance(data, torch.Tensor):
        if move_tensor is not None:
            return move_tensor(data)
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        moved = {key: move(value, device, move_tensor) for key, value in data.items()}
        return moved if type(data) is dict else type(data)(moved)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(move(value, device, move_tensor) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(move(value, device, move_tensor) for value in data)
    if hasattr(data, "to"):
        return data.to(device)
    return data


class DeviceMover:
    def __init__(self, device):
        self.device = device
        self.copy_stream = None

    def __call__(self, data):
        device = self.device
        if device.type != "cuda" or not torch.cuda.is_available():
            return move(data, device)
        if torch.cuda.is_current_stream_capturing():  # it must not wait for another stream
            return move(data, device)
        if self.copy_stream is None:
            self.copy_stream = torch.cuda.Stream(device)
        consumer = torch.cuda.current_stream(device)
        moved = move(data, device, lambda tensor: self._enqueue(tensor, consumer))
        consumer.wait_stream(self.copy_stream)
        return moved

    def _enqueue(self, tensor, consumer):
        plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
        if not plain or tensor.device.type != "cpu":
            return tensor.to(self.device, non_blocking=True)
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        with torch.cuda.stream(self.copy_stream):
            moved = pinned.to(self.device, non_blocking=True)
        moved.record_stream(consumer)
        return moved
