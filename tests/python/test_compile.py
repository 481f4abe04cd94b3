"""torch.compile makes the same graphs, with the same breaks, with and without leat."""

import re
import subprocess
import sys
import textwrap

import pytest
from conftest import environment

SCENARIOS = {
    "model": """
    step = torch.compile(model, backend=BACKEND)
    for x, y in DataLoader(Rows(21), batch_size=3):
        loss = nn.functional.cross_entropy(step(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    """,
    "whole step": """
    @torch.compile(backend=BACKEND)
    def step(x, y):
        opt.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss
    for x, y in DataLoader(Rows(21), batch_size=3):
        step(x, y)
    """,
    "optimizer": """
    @torch.compile(backend=BACKEND)
    def step():
        opt.step()
    for x, y in DataLoader(Rows(21), batch_size=3):
        loss_of(model, x, y).backward()
        step()
        opt.zero_grad()
    """,
    "loop inside": """
    @torch.compile(backend=BACKEND)
    def epoch(loader):
        total = torch.zeros(())
        for x, y in loader:
            total = total + loss_of(model, x, y)
            torch.autograd.backward(total.mean())
            total = total.detach()
        return total
    epoch(DataLoader(Rows(21), batch_size=3))
    """,
    "data parallel": """
    import torch.distributed as dist
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel = nn.parallel.DistributedDataParallel(model)
    step = torch.compile(parallel, backend=BACKEND)
    @torch.compile(backend=BACKEND)
    def doubled(x):
        return parallel(x) * 2
    for x, y in DataLoader(Rows(21), batch_size=3):
        nn.functional.cross_entropy(step(x), y).backward()
        nn.functional.cross_entropy(doubled(x), y).backward()
        opt.step()
    dist.destroy_process_group()
    """,
    "transfers": """
    @torch.compile(backend=BACKEND)
    def forward(x):
        x = x.to(torch.float64).cpu().to("cpu", torch.float32)
        return model(x) * model.weight.sum().item()
    for x, y in DataLoader(Rows(21), batch_size=3):
        forward(x)
    """,
}

AROUND = """
torch._dynamo.reset()
counters.clear()
torch.manual_seed(0)
model = net()
opt = torch.optim.{optimizer}(model.parameters(), lr=0.01)
{scenario}
print({name!r}, dict(counters["stats"]), sum(counters["graph_break"].values()),
      [p.sum().item() for p in model.parameters()])
"""


def _script(backend, optimizer):
    parts = [
        f"import torch._dynamo\nfrom torch._dynamo.utils import counters\nBACKEND = '{backend}'"
    ]
    for name, scenario in SCENARIOS.items():
        body = textwrap.dedent(scenario)
        parts.append(AROUND.format(optimizer=optimizer, scenario=body, name=name))
    return "\n".join(parts)


def _without_numbers(text):
    """Removes times and process ids from log lines."""
    return re.sub(r"[0-9]+", "0", text)


def _run_plain(tmp_path):
    """The script of the last train(), without leat."""
    plain = subprocess.run(
        [sys.executable, "script.py"],
        env=environment(inject=False),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert plain.returncode == 0, plain.stderr
    return plain


@pytest.mark.parametrize("backend,optimizer", [("eager", "SGD"), ("aot_eager", "Adam")])
def test_same_graphs(train, tmp_path, backend, optimizer):
    run = train(_script(backend, optimizer))
    plain = _run_plain(tmp_path)
    assert run.stdout.splitlines() == plain.stdout.splitlines()
    assert "unique_graphs" in run.stdout
    assert _without_numbers(run.stderr) == _without_numbers(plain.stderr)
    main = run.main
    assert len(main.of("compile")) >= len(SCENARIOS)
    assert len(main.batches()) == 7 * len(SCENARIOS)
    # The same steps as without compiling.
    assert len(main.of("backward")) == 6 * 7 and len(main.of("optimizer")) == 4 * 7


def test_compile_spans_after_a_dynamo_reset(train):
    run = train("""
    model = torch.compile(net(), backend="eager")
    for _ in range(3):
        model(torch.zeros(2, 4))
        torch._dynamo.reset()
    """)
    (process,) = run.receiver.processes
    assert len(process.of("compile")) == 3


def test_compiled_steps_have_the_number_of_their_optimizer(train):
    """Recompiled or not, in one graph or two, with accumulation. A closure inside an uncompiled step may be
    compiled; it is not a step of its own."""
    run = train("""
    model, other = net(), net()
    first = torch.optim.Adam([{"params": [model.weight]}, {"params": [model.bias]}])
    second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    @torch.compile(backend="eager")
    def step(which, twice):
        which.step()
        if twice:
            torch._dynamo.graph_break()
            second.step()
    for i, (x, y) in enumerate(DataLoader(Rows(21), batch_size=3)):
        (loss_of(model, x, y) + loss_of(other, x, y)).backward()
        if i % 2:
            step(first, i > 2)
    second.step()
    """)
    ids = [record.id for record in run.main.of("optimizer")]
    assert len(ids) == 3 + 2 + 1
    assert ids == [0, 0, 1, 0, 1, 1]


def test_a_loader_inside_a_compiled_function(train, tmp_path):
    """next() is a C function with leat; the graphs are the same as without."""
    run = train("""
    graphs = []
    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    loader, model = DataLoader(Rows(12), batch_size=4), net()

    @torch.compile(backend=backend)
    def epoch():
        total = torch.zeros(())
        for x, _ in loader:
            total = total + model(x).sum()
        return total

    @torch.compile(backend=backend)
    def one(batches):
        return model(next(batches)[0]).sum()

    for _ in range(3):
        epoch()
    batches = iter(loader)
    one(batches), one(batches)
    print(len(graphs))
    """)
    assert int(run.stdout) == int(_run_plain(tmp_path).stdout) > 0
    assert len(run.main.batches()) == 3 * 3 + 2
