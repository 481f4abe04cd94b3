"""device= on a machine without a GPU. With one, see tests/gpu/."""

import pickle

import leat
import pytest
import torch
from leat import _engine

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_no_driver_is_an_error_of_the_loader(device):
    loader = leat.DataLoader(torch.arange(10), 2, device=device)
    with pytest.raises(RuntimeError, match=r"device='cuda.*no NVIDIA driver.*libcuda\.so\.1"):
        iter(loader)
    assert next(iter(leat.DataLoader(torch.arange(10), 2))).tolist() == [0, 1]  # others still work


@no_gpu
def test_no_driver_is_an_error_of_the_engine():
    x = torch.arange(10)
    fields = ((None, _engine.DTYPE_int64, x.data_ptr(), (10,), (8,)),)
    source = _engine.source_memory(fields, x)
    with pytest.raises(OSError, match=r"device='cuda': no NVIDIA driver here \(libcuda.so.1\)"):
        _engine.Engine(source, 2, device=1)


def test_plan_of_a_device():
    text = str(leat.DataLoader(torch.arange(10), 2, device="cuda").plan())
    assert "cuda: copied from page-locked slots" in text and "a quarter of its free memory" in text
    text = str(leat.DataLoader(torch.arange(10), 2, device="cuda", device_memory=4096).plan())
    assert "at most 4096 bytes" in text
    through_torch = leat.DataLoader([1, 2], 2, device="cuda").plan()
    assert "moved from page-locked memory on a separate stream" in str(through_torch)
    assert ("device", "cpu", "C") in leat.DataLoader(torch.arange(10), 2, device="cpu").plan().rows


def test_device_memory_is_checked():
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="device_memory"):
            leat.DataLoader(torch.arange(4), device_memory=wrong)
    with pytest.raises(TypeError, match="device_memory"):
        leat.DataLoader(torch.arange(4), device_memory="1GB")
    loader = leat.DataLoader(torch.arange(4), device_memory=1 << 30)
    assert pickle.loads(pickle.dumps(loader)).device_memory == 1 << 30


def test_device_cpu():
    for device in (None, "cpu", torch.device("cpu")):
        batches = list(leat.DataLoader(torch.arange(10), 4, device=device))
        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert all(batch.device.type == "cpu" for batch in batches)
