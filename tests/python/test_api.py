"""The public functions."""

import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import PACKAGE, environment
from receiver import END, ERROR, NOGRAD, iteration, samples


@pytest.fixture
def leat(monkeypatch):
    monkeypatch.delenv("LEAT_SOCKET", raising=False)
    monkeypatch.syspath_prepend(os.path.dirname(PACKAGE))
    import leat

    return leat


def test_calls_without_a_run_do_nothing(leat):
    leat.step()
    with leat.phase("x"):
        pass

    @leat.phase("y")
    def double(n):
        "Twice."
        return 2 * n

    assert double(3) == 6 and double.__doc__ == "Twice."
    wrapped = leat.wrap_loader([1, 2, 3])
    assert list(wrapped) == list(wrapped) == [1, 2, 3] and len(wrapped) == 3
    assert leat.__version__.count(".") == 2


def test_wrap_loader_keeps_length_and_attributes(leat):
    class Mine:
        colour = "blue"

        def __iter__(self):
            return iter("abc")

    wrapped = leat.wrap_loader(Mine())
    assert wrapped.colour == "blue" and "".join(wrapped) == "abc"
    with pytest.raises(TypeError):
        len(wrapped)
    with pytest.raises(AttributeError):
        print(wrapped.taste)
    stream = leat.wrap_loader(iter(range(3)))
    assert next(stream) == 0 and list(stream) == [1, 2]


def test_final_summary(leat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert leat.final_summary() is None
    for number, name in enumerate(("first", "second")):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        (folder / "final_summary.json").write_text(json.dumps({"run": {"name": name}}))
        os.utime(folder / "final_summary.json", (number, number))
    assert leat.final_summary()["run"]["name"] == "second"
    assert leat.final_summary(tmp_path / "logs" / "first")["run"]["name"] == "first"
    file = tmp_path / "logs" / "first" / "final_summary.json"
    assert leat.final_summary(str(file))["run"]["name"] == "first"
    monkeypatch.setenv("LEAT_SOCKET", "/tmp/x")
    assert leat.final_summary() is None
    with pytest.raises(FileNotFoundError):
        leat.final_summary(tmp_path / "logs" / "third")


def test_import_leat_imports_few_modules(tmp_path):
    script = "import sys; before = set(sys.modules); import leat\nprint(*set(sys.modules) - before)"
    env = environment(inject=False, PYTHONPATH=os.path.dirname(PACKAGE))
    out = subprocess.check_output([sys.executable, "-c", script], env=env, text=True).split()
    assert not {"torch", "numpy", "json", "ctypes"} & set(out) and len(out) < 25


@pytest.mark.skipif(
    torch.__version__.startswith("2.0.") and sys.version_info >= (3, 11),
    reason="torch 2.0 compiles nothing on this Python",
)
def test_steps_phases_and_loaders(train):
    run = train("""
    import leat, threading
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)

    @leat.phase("load")
    def load(n):
        return load(n - 1) if n else 0

    def batches():
        for i in range(23):
            yield torch.zeros(5, 2)

    for batch in leat.wrap_loader(batches()):
        load(2)
        opt.step()
        leat.step()
    class Twice:
        def __iter__(self): return batches()
        def __len__(self): return 23
    loader = leat.wrap_loader(Twice(), "twice")
    for epoch in range(2):
        with torch.no_grad():
            assert len(loader) == 23 and len(list(loader)) == 23
    for batch in leat.wrap_loader(DataLoader(Rows(10), batch_size=5)):
        pass
    try:
        with leat.phase("bad"):
            raise KeyError
    except KeyError:
        pass
    thread = threading.Thread(target=load, args=(0,))
    thread.start()
    thread.join()

    @torch.compile(backend="eager", fullgraph=True)
    def compiled(x):
        with leat.phase("inside"):
            x = x + 1
        leat.step()
        return x * 2
    compiled(torch.zeros(3))
    """)
    main = run.main
    assert len(main.of("step")) == 23 and main.header["signals"] & 64
    assert len(main.spans("load")) == 23 * 3 + 1 and main.spans("bad")[0].flags == ERROR
    assert "inside" not in main.names
    by_iteration = [[r for r in main.batches() if iteration(r) == i] for i in (1, 2, 3, 4)]
    assert [len(part) for part in by_iteration] == [23, 23, 23, 2]
    assert {r.flags for r in by_iteration[1]} == {NOGRAD} and {
        r.flags for r in by_iteration[0]
    } == {0}
    assert {samples(r) for part in by_iteration for r in part} == {5}
    assert len([r for r in main.of("fetch") if r.flags & END]) == 4
    assert [loader.dataset for loader in main.loaders] == ["generator", "twice", "Rows"]
    assert main.loaders[2].batch_size == 5


@pytest.mark.skipif(
    torch.__version__.startswith("2.0.") and sys.version_info >= (3, 11),
    reason="torch 2.0 compiles nothing on this Python",
)
def test_phase_without_a_run_breaks_no_graph(tmp_path):
    script = (
        "import torch, leat\n"
        "@torch.compile(backend='eager', fullgraph=True)\n"
        "def f(x):\n"
        "    with leat.phase('inside'):\n"
        "        x = x + 1\n"
        "    leat.step()\n"
        "    return x * 2\n"
        "f(torch.zeros(3))\n"
    )
    path = tmp_path / "f.py"
    path.write_text(script)
    env = environment(inject=False, PYTHONPATH=os.path.dirname(PACKAGE))
    done = subprocess.run([sys.executable, str(path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
