"""With a GPU: copies, waits, memory, and optimizer steps in autograd's own threads."""

import pytest
import torch
from receiver import NESTED, RESERVED, RETRIES, SPLIT

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# Installs what is otherwise installed when CUDA is initialised; `original` as before.
INSTALL = """
from leat.hooks import cuda, install
NAMES = "to", "cuda", "item", "cpu", "tolist"
original = {name: getattr(torch.Tensor, name) for name in NAMES}
if install._tick.memory is None:
    cuda._install_now(torch, install._tick)
assert {name for name in NAMES if name in vars(torch.Tensor)} == set(NAMES)
device = "cuda" if torch.cuda.is_available() else "cpu"
"""


def test_methods_of_tensors_keep_their_identity(train):
    run = train(
        INSTALL
        + """
import inspect, pickle
for name in NAMES:
    assert getattr(torch.Tensor, name) is original[name]
    assert getattr(torch.nn.Parameter, name) is original[name]
assert pickle.loads(pickle.dumps(torch.Tensor.to)) is torch.Tensor.to

class Image(torch.Tensor):  # as torchvision's
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(cls) if func in (original["to"], original["cpu"]) else result

image = torch.zeros(3).as_subclass(Image)
assert type(image.to(torch.float64)) is type(image.cpu()) is Image
assert type(image + 1) is torch.Tensor
parameter = torch.nn.Parameter(torch.zeros(3))
assert parameter.to(torch.float64).tolist() == parameter.cpu().tolist() == [0, 0, 0]
assert torch.zeros(1).item() == 0
assert torch.Tensor.to(torch.zeros(1), torch.float64).dtype is torch.float64
try:
    torch.Tensor.to(3, "cpu")
except TypeError as error:
    assert "'to'" in str(error), error
install.remove()
assert not {name for name in NAMES if name in vars(torch.Tensor)}
""",
    )
    assert run.stderr == ""


def test_strict_torch_functions_see_only_the_scripts_calls(train):
    run = train(
        INSTALL
        + """
from torch.overrides import TorchFunctionMode
seen = []

class Strict(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert func is original["to"], func
        return "not a tensor"

class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(func)
        return func(*args, **(kwargs or {}))

assert torch.zeros(3).as_subclass(Strict).to(device) == "not a tensor"
x = torch.zeros(3)
with Mode():
    x.to(device)
    x.cpu()
    x.tolist()
assert seen == [original["to"], original["cpu"], original["tolist"]], seen

class Answers(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return 3

with Answers():
    assert x.to(device) == x.cpu() == 3
""",
    )
    assert run.stderr == ""


def test_plain_tensors_are_timed(train):
    """float64 stands for a tensor on the GPU."""
    run = train(
        """
from leat.hooks import cuda
cuda._Tensors.on_gpu = lambda self, tensor: tensor.dtype is torch.float64
"""
        + INSTALL
        + """
class Image(torch.Tensor):
    pass

model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows(3)):
    loss_of(model, x, y).backward()
    opt.step()
    assert x.to(torch.float32) is x
    moved = x.to(torch.float64)
    assert moved.to(torch.float64) is moved
    torch.nn.Parameter(x).to(torch.float64)
    x.as_subclass(Image).to(torch.float64)
    moved[0, 0].item()
    moved.tolist()
    x.tolist()
""",
    )
    assert [r.arg for r in run.main.of("h2d")] == [32] * 6
    assert len(run.main.spans("item", "sync")) == len(run.main.spans("tolist", "sync")) == 3
    assert run.stderr == ""


def test_dynamo_traces_the_methods_of_tensors(train):
    run = train(
        INSTALL
        + """
def double(x, p):
    return x.to(torch.float64).cpu() + p.to(torch.float64)

compiled = torch.compile(double, backend="eager", fullgraph=True)
x, p = torch.ones(3), torch.nn.Parameter(torch.ones(3))
assert compiled(x, p).tolist() == [2, 2, 2]
""",
    )
    assert run.stderr == ""


@needs_gpu
def test_training_on_the_gpu(train):
    run = train("""
    import time
    assert not torch.cuda.is_initialized()
    model = net().cuda()
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x, y in DataLoader(Rows(101), pin_memory=True):
        x, y = x.to("cuda", non_blocking=True), y.cuda()
        scaler.scale(loss_of(model, x, y)).backward()
        scaler.step(opt)
        scaler.update()
        time.sleep(0.005)
    torch.cuda.synchronize()
    torch.cuda.current_stream().synchronize()
    model.weight.sum().item()
    """)
    main = run.main
    assert main.header["signals"] & 31 == 31 and main.header["devices"].startswith("GPU-")
    copies = main.of("h2d")
    assert sum(r.arg == 16 for r in copies) == 101 and sum(r.arg == 8 for r in copies) >= 101
    assert len(main.of("optimizer")) == len(main.of("backward")) == 101
    for name in ("cuda.synchronize", "Stream.synchronize"):
        assert len(main.spans(name, "sync")) == 1
    assert len(main.spans("item", "sync")) >= 1
    memory = main.of("memory")
    for flag in (RESERVED, SPLIT, RETRIES):
        assert len([r for r in memory if r.flags & flag]) == len(memory) / 4 >= 1
    assert all(r.arg > 0 for r in memory if not r.flags & (SPLIT | RETRIES))
    assert len({r.t1 for r in memory}) == len(memory) / 4  # one time, so one row


@needs_gpu
def test_steps_inside_the_backward(train):
    run = train("""
    model = net().cuda()
    one = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: one[p].step())
    for _ in range(7):
        model(torch.zeros(1, 4, device="cuda")).sum().backward()
    """)
    assert [bool(r.flags & NESTED) for r in run.main.of("optimizer")] == [True] * 14
    assert len(run.main.of("backward")) == 7
