"""Backward, optimizers, GradScaler, closures, clipping, checkpoints: exact counts."""

import pytest
import torch
from receiver import ERROR, NESTED


def test_accumulation_without_a_loader(train):
    run = train("""
    model = net()
    opt = torch.optim.AdamW(model.parameters())
    for step in range(23):
        for micro in range(3):
            loss_of(model, torch.zeros(2, 4), torch.zeros(2, dtype=int)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
    """)
    main = run.main
    assert len(main.of("backward")) == 69 and len(main.of("optimizer")) == 23
    assert len(main.spans("optimizer")) == 23
    assert main.of("fetch") == [] and main.role == "main"


def test_two_optimizers_and_autograd_backward(train):
    run = train("""
    from torch.optim import SGD
    g, d = net(), net()
    opt_g, opt_d = SGD(g.parameters(), lr=0.1), SGD(d.parameters(), lr=0.1)
    x, y = torch.zeros(2, 4), torch.zeros(2, dtype=int)
    for step in range(23):
        torch.autograd.backward([loss_of(d, x, y), d(x).sum()])
        opt_d.step()
        loss_of(g, x, y).backward()
        opt_g.step()
    torch.autograd.grad(g(x).sum(), g.weight)
    """)
    steps = run.main.of("optimizer")
    assert [r.id for r in steps] == [0, 1] * 23
    assert len(run.main.of("backward")) == 46


def test_deleted_and_new_optimizers_have_different_numbers(train):
    run = train("""
    for i in range(11):
        model = net()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        opt.step()
        del opt, model
    """)
    assert [r.id for r in run.main.of("optimizer")] == list(range(11))


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="no GradScaler on the CPU")
def test_grad_scaler_counts_skipped_steps(train):
    run = train("""
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    done = []
    opt.register_step_post_hook(lambda *_: done.append(1))
    for step in range(23):
        loss = loss_of(model, torch.zeros(2, 4), torch.zeros(2, dtype=int))
        if step % 5 == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
    off = torch.amp.GradScaler("cpu", enabled=False)
    off.step(opt)
    opt.step()
    print(len(done))
    """)
    assert run.stdout == "20\n"  # 18 of the 23, and two at the end
    assert [r.id for r in run.main.of("optimizer")] == [0] * 25


def test_closures(train):
    run = train("""
    model = net()
    opt = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = torch.randn(8, 4), torch.ones(8, dtype=int)
    calls = 0
    def closure():
        global calls
        calls += 1
        opt.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        return loss
    for step in range(7):
        value = opt.step(closure) if step % 2 else opt.step(closure=closure)
        assert isinstance(value, torch.Tensor)
    print(calls)
    """)
    main = run.main
    assert len(main.of("optimizer")) == 7
    assert len(main.of("closure")) == len(main.of("backward")) == int(run.stdout) > 7
    for span in main.of("closure"):
        assert any(s.t0 <= span.t0 and span.t1 <= s.t1 for s in main.of("optimizer"))


def test_exceptions_inside_a_step(train):
    run = train("""
    class Moody(torch.optim.SGD):
        bad = False
        def step(self, closure=None):
            if self.bad:
                raise RuntimeError("no step")
            return super().step(closure)
    model = net()
    opt = Moody(model.parameters(), lr=0.1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(23):
        opt.bad = step % 4 == 1
        try:
            opt.step()
        except RuntimeError:
            pass
    inner.step()
    for bad in (False, True, False):
        loss = model(torch.zeros(1, 4)).sum()
        try:
            (loss.detach() if bad else loss).backward()
        except RuntimeError:
            pass
    opt.bad = False
    opt.step()
    """)
    steps = run.main.of("optimizer")
    assert len(steps) == 17 + 1 + 1 and [r.id for r in steps] == [0] * 17 + [1, 0]
    assert [r.flags for r in run.main.of("backward")] == [0, ERROR, 0]
    assert all(not r.flags & NESTED for r in steps)
    assert all(a.t1 <= b.t0 for a, b in zip(steps, steps[1:]))


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="before torch 2.1"
)
def test_optimizers_inside_optimizers_and_inside_backward(train):
    run = train("""
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner
        def step(self, closure=None):
            self.inner.step()
            self.inner.step()
    model = net()
    outer = Outer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(5):
        outer.step()
    one = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: one[p].step())
    for _ in range(7):
        model(torch.zeros(1, 4)).sum().backward()
    """)
    steps = run.main.of("optimizer")
    assert len([r for r in steps if not r.flags & NESTED]) == 5
    assert len([r for r in steps if r.flags & NESTED]) == 14
    assert len(run.main.of("backward")) == 7


def test_checkpoints_of_other_writers(train, tmp_path):
    """safetensors (here a module of its name), and torch's checkpoints for several ranks."""
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "torch.py").write_text(
        "import torch\n"
        "def save_file(tensors, path):\n"
        "    torch.save(tensors, path)\n"
        "def save_model(model, path):\n"
        "    save_file(model.state_dict(), path)\n"
    )
    run = train("""
    from safetensors.torch import save_file, save_model
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.zeros(2, 4)).sum().backward()
    opt.step()
    save_file(model.state_dict(), "a")
    save_model(model, "b")
    try:
        from torch.distributed.checkpoint import save
    except ImportError:  # before torch 2.2
        torch.save(model, "c")
    else:
        save(model.state_dict(), checkpoint_id="c", no_dist=True)
    """)
    assert [r.flags for r in run.main.spans("checkpoint")] == [0] * 3


def test_checkpoints_and_clipping(train):
    run = train("""
    import io
    from torch.nn.utils import clip_grad_value_
    from torch.nn.utils.clip_grad import clip_grad_norm_
    model = net()
    model(torch.zeros(1, 4)).sum().backward()
    for _ in range(3):
        torch.save(model.state_dict(), io.BytesIO())
        torch.serialization.save(model.state_dict(), io.BytesIO())
    for _ in range(5):
        clip_grad_norm_(model.parameters(), 1.0)
        clip_grad_value_(model.parameters(), 1.0)
    try:
        torch.save(model, "/nonexistent/folder/x.pt")
    except (OSError, RuntimeError):
        pass
    """)
    assert [r.flags for r in run.main.spans("checkpoint")] == [0] * 6 + [ERROR]
    assert len(run.main.spans("optimizer")) == 10


def test_subclasses_of_tensor_keep_their_backward(train):
    run = train("""
    seen = []
    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})
    x = torch.ones(3, requires_grad=True).as_subclass(Mine)
    (x * 2).sum().backward()
    assert torch.Tensor.backward in seen
    assert torch.Tensor.backward.__name__ == "backward"
    assert torch.autograd.backward.__name__ == "backward"
    """)
    assert len(run.main.of("backward")) == 1


def test_exception_is_reported_at_exit(train):
    run = train(
        """
    def deep():
        net()(torch.zeros(1, 3))
    for x, y in DataLoader(Rows(3)):
        deep()
    """,
        fails=True,
    )
    line = next(i for i, s in enumerate(open_script(run), 1) if "net()(" in s)
    text = run.main.header["exception"]
    assert text.startswith("RuntimeError: mat1 and mat2") and text.endswith(f"(script.py:{line})")


def open_script(run):
    import os

    with open(os.path.join(os.path.dirname(run.receiver.path), "script.py")) as file:
        return file.readlines()


def test_backward_has_name_signature_copy_and_pickle(train):
    """As without leat."""
    run = train("""
    import copy, inspect, pickle
    backward = torch.autograd.backward
    assert type(backward).__module__.startswith("leat"), backward
    assert backward.__name__ == "backward" and "grad_tensors" in inspect.signature(backward).parameters
    assert copy.deepcopy(backward) is backward
    assert pickle.loads(pickle.dumps(backward)) is backward
    x = torch.ones(1, requires_grad=True)
    backward((2 * x,), inputs=[x])
    try:
        backward((torch.ones(1),))
    except RuntimeError as error:
        assert "does not require grad" in str(error)
    else:
        raise AssertionError("no error")
    """)
    assert len(run.main.of("backward", without=ERROR)) == 1
    assert len(run.main.of("backward")) == 2


def test_output_of_data_parallel_can_be_saved(train):
    """It has a hook of leat, for which torch would warn when the output is saved."""
    run = train("""
    import io
    import warnings
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    warnings.simplefilter("error")
    output = nn.parallel.DistributedDataParallel(net())(torch.ones(2, 4))
    torch.save(output, io.BytesIO())
    output.sum().backward()
    print("saved", output._backward_hooks is not None)
    dist.destroy_process_group()
    """)
    assert run.stdout.split() == ["saved", "True"]
    assert len(run.main.of("backward")) == 1
