"""Start-up, children, ranks, and the end of processes."""

import glob
import os
import subprocess
import sys
import textwrap

import pytest
from conftest import PACKAGE, environment

LOOP = """
model = net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(Rows({rows})):
    loss_of(model, x, y).backward()
    opt.step()
"""


def test_without_torch_nothing_is_reported(train):
    run = train(
        """
        import sys
        assert not [name for name in sys.modules if name.split(".")[0] == "leat"]
        assert not [entry for entry in sys.path if "_inject" in entry]
        assert "sitecustomize" not in sys.modules or "leat" not in sys.modules["sitecustomize"].__file__
        import json, http.client, concurrent.futures
        """,
        preamble=False,
    )
    assert run.receiver.processes == [] and run.stderr == ""


@pytest.mark.parametrize("options,socket", [(["-I"], True), (["-S"], True), ([], False)])
def test_no_hooks_without_site_or_socket(tmp_path, options, socket):
    script = (
        "import sys\n"
        "sys.path.extend(%r)\n"
        "import torch\n"
        "assert 'leat' not in sys.modules\n"
        "assert not hasattr(torch.autograd.backward, '__wrapped__')\n"
    ) % [p for p in sys.path if p.endswith("site-packages")]
    env = environment(str(tmp_path / "none.sock") if socket else None)
    done = subprocess.run(
        [sys.executable, *options, "-c", script], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("socket", ["/nonexistent/leat.sock", "x" * 300, ""])
def test_without_leat_at_the_socket(tmp_path, socket):
    script = (
        "import torch, leat, sys\n"
        "leat.step()\n"
        "with leat.phase('x'): pass\n"
        "assert list(leat.wrap_loader([1, 2])) == [1, 2]\n"
        "assert not hasattr(torch.autograd.backward, '__wrapped__')\n"
    )
    env = environment(inject=True)
    env["LEAT_SOCKET"] = socket
    if not socket:  # then sitecustomize does not find leat either
        env["PYTHONPATH"] += os.pathsep + os.path.dirname(PACKAGE)
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_users_own_sitecustomize_runs(train, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = __file__\n")
    path = os.pathsep.join([os.path.join(PACKAGE, "_inject"), str(other)])
    run = train(
        """
        import builtins, sitecustomize, os, sys, subprocess
        print(builtins.mine == sitecustomize.__file__)
        print([os.path.basename(p) for p in sys.path if p.endswith(("other", "_inject"))])
        print(subprocess.check_output([sys.executable, "-c", "print(mine)"], text=True).strip()
              == mine)
        """,
        preamble=False,
        PYTHONPATH=path,
    )
    assert run.stdout.splitlines() == ["True", "['other']", "True"] and run.stderr == ""


def test_error_in_users_sitecustomize_is_reported_as_without_leat(train, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("raise ValueError('mine is broken')\n")
    path = os.pathsep.join([os.path.join(PACKAGE, "_inject"), str(other)])
    script = "print('on')"
    with_leat = train(script, preamble=False, PYTHONPATH=path)
    plain = subprocess.run(
        [sys.executable, "script.py"],
        env=environment(inject=False, PYTHONPATH=str(other)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert with_leat.stdout == plain.stdout == "on\n"
    assert with_leat.stderr == plain.stderr and "mine is broken" in plain.stderr


def test_imports_are_not_changed(train):
    run = train(
        """
        import threading
        threads = [threading.Thread(target=__import__, args=("torch",)) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        import inspect, importlib.resources, importlib.machinery, sys, torch, pickle
        from torch.utils.data import DataLoader
        assert type(torch.__loader__) is importlib.machinery.SourceFileLoader
        assert torch.__spec__.loader is torch.__loader__
        assert "exec_module" not in vars(torch.__loader__)
        assert "torch" in inspect.getsource(torch)
        assert importlib.resources.files("torch").joinpath("version.py").is_file()
        assert [type(f).__module__ for f in sys.meta_path].count("sitecustomize") <= 1
        parameters = inspect.signature(DataLoader.__init__).parameters
        assert "num_workers" in parameters and "batch_sampler" in parameters
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
        DataLoader([1, 2]).__iter__()
        import leat
        assert leat.__version__
        """,
        preamble=False,
    )
    assert len(run.receiver.processes) == 1 and run.stderr == ""


# Finders with loaders that importlib accepts; each finds torch by Loader(...).
LOADERS = {
    "slots": """
        class Loader:
            __slots__ = ("exec_module", "original")
            def __init__(self, spec):
                self.original = spec.loader
                self.exec_module = self.original.exec_module
            def create_module(self, spec): return None
        make = Loader
        """,
    "class": """
        class Loader:
            original = None
            @classmethod
            def create_module(cls, spec): return None
            @classmethod
            def exec_module(cls, module): cls.original.exec_module(module)
        def make(spec):
            Loader.original = spec.loader
            return Loader
        """,
    "attributes cannot be set": """
        class Loader:
            def __init__(self, spec): self.__dict__["original"] = spec.loader
            def __setattr__(self, name, value): raise RuntimeError(name)
            def __getattr__(self, name): return getattr(self.original, name)
        make = Loader
        """,
    "own exec_module": """
        class Loader:
            def __init__(self, spec):
                self.exec_module = self.mine = spec.loader.exec_module
            def create_module(self, spec): return None
        make = Loader
        """,
}


@pytest.mark.parametrize("loader", LOADERS)
def test_loaders_of_other_importers(train, loader):
    run = train(
        textwrap.dedent(LOADERS[loader])
        + textwrap.dedent("""
        import importlib.util, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name != "torch":
                    return None
                from importlib.machinery import PathFinder
                spec = PathFinder.find_spec(name, path)
                self.loader = spec.loader = make(spec)
                return spec
        finder = Finder()
        sys.meta_path.insert(1, finder)
        assert isinstance(importlib.util.find_spec("torch").loader, type(finder.loader))
        import torch
        assert torch.__loader__ is torch.__spec__.loader is finder.loader
        here = finder.loader.exec_module
        assert here == getattr(finder.loader, "mine", here)
        from torch.utils.data import DataLoader
        for _ in DataLoader([1, 2, 3]): pass
        """),
        preamble=False,
    )
    assert len(run.main.batches()) == 3 and run.stderr == ""


@pytest.mark.parametrize("file", ["leat.py", "leat/__init__.py"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_users_own_module_named_leat(train, tmp_path, file, when):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(
        "from torch.utils.data import Dataset\n"
        "class Mine(Dataset):\n"
        "    def __len__(self): return 7\n"
        "    def __getitem__(self, i): return i\n"
        if when == "after"
        else "import sys\nassert 'torch' not in sys.modules\nMine = lambda: list(range(7))\n"
    )
    imports = ["import leat", "import torch", "import torch._dynamo"]
    run = train(
        "\n".join(imports if when == "before" else imports[1:] + imports[:1])
        + textwrap.dedent("""
        import os
        assert os.path.dirname(leat.__file__).startswith(os.getcwd()), leat.__file__
        from torch.utils.data import DataLoader
        for _ in DataLoader(leat.Mine(), num_workers=2): pass
        """),
        preamble=False,
    )
    assert len(run.main.batches()) == 7 and len(run.workers) == 2 and run.stderr == ""
    assert not run.main.header["missing"]


def test_a_users_module_named_leat_is_not_imported_by_the_hooks(train, tmp_path):
    (tmp_path / "leat.py").write_text("raise ValueError('not for you')\n")
    run = train("for _ in DataLoader(Rows(5), num_workers=1): pass")
    assert len(run.main.batches()) == 5 and run.stderr == ""


def test_a_folder_named_leat_does_not_hide_leat(train, tmp_path):
    (tmp_path / "leat").mkdir()
    run = train("""
    import leat
    assert leat.__version__
    for _ in DataLoader(Rows(5)): leat.step()
    """)
    assert len(run.main.batches()) == len(run.main.of("step")) == 5


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_that_train(train, method):
    """Ranks made by torch.multiprocessing; with fork, after the parent has trained too."""
    run = train(f"""
    import torch.multiprocessing as mp
    import torch.distributed as dist

    def rank_main(rank, port):
        # Not by a file: with torch 2.0.1 a rank then hangs in destroy_process_group, without leat too.
        where = f"tcp://127.0.0.1:{{port}}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
        model = net()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(Rows(11 + rank)):
            loss_of(model, x, y).backward()
            opt.step()
        for _ in range(7):
            dist.all_reduce(torch.zeros(1))
        handle = dist.all_reduce(torch.zeros(1), async_op=True)
        handle.wait()
        dist.barrier()
        objects = [None, None]
        dist.all_gather_object(objects, rank)
        dist.destroy_process_group()

    if __name__ == "__main__":
        import os, socket
        if "{method}" == "fork":
            for _ in DataLoader(Rows(3)): pass
            for _ in DataLoader(Rows(5)): pass
            torch.save(1, os.devnull)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        mp.start_processes(rank_main, (port,), nprocs=2, start_method="{method}")
    """)
    ranks = {p.header["rank"]: p for p in run.receiver.role("main") if p.header["rank"] >= 0}
    assert sorted(ranks) == [0, 1]
    for rank, process in ranks.items():
        header = process.header
        assert header["world_size"] == 2 and header["signals"] & 15 == 15 and header["torch"]
        assert len(process.batches()) == len(process.of("optimizer")) == 11 + rank
        assert {process.loaders[r.id].length for r in process.batches()} == {11 + rank}
        names = [process.names[r.id] for r in process.of("sync")]
        assert names.count("all_reduce") == 8 and names.count("barrier") == 1
        assert names.count("all_gather_object") == 1
        assert "all_gather" not in names
        assert names.count("wait") in (0, 1)
    rest = [p for p in run.receiver.processes if p.header["rank"] < 0 and p.records]
    assert len(rest) == (method == "fork")
    if rest:
        assert len(rest[0].batches()) == 8 and rest[0].role == "main"


def test_a_forked_child_that_does_not_train_reports_nothing(train):
    run = train("""
    import os, threading
    for x, y in DataLoader(Rows(3)):
        pass
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            threading.Event().wait(0.01)
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert len(run.receiver.processes) == 1


def test_stop_removes_the_hooks(train):
    stopped = []

    def stop(process):
        process.stop()
        stopped.append(process)

    run = train(
        """
import threading
from torch.optim import optimizer

def patched():
    return (torch.autograd.backward, DataLoader.__iter__, torch.save,
            torch.distributed.all_reduce)

originals = [f.__wrapped__ for f in patched()]
assert optimizer._global_optimizer_pre_hooks
from leat import _record
while _record.recording(): pass  # until leat's word is there
"""
        + LOOP.format(rows=3)
        + """
assert all(a is b for a, b in zip(patched(), originals))
assert not optimizer._global_optimizer_pre_hooks
assert not optimizer._global_optimizer_post_hooks
""",
        on_hello=stop,
    )
    assert stopped and run.receiver.processes[0].records == []


def test_remove_restores_everything(train):
    run = train("""
    import threading, sys
    from torch.utils.data import dataloader
    from torch.utils.data._utils import worker
    from leat.hooks import install, patch, user_code
    import torch._dynamo
    patched = [(o, a) for o, a, w, own in patch._patches]
    assert len(patched) > 30
    for x, y in DataLoader(Rows(3)): pass
    install.remove()
    for owner, attribute in patched:
        code = getattr(vars(owner).get(attribute), "__code__", None)
        assert code is None or not code.co_filename.startswith(user_code.LEAT), (owner, attribute)
    for x, y in DataLoader(Rows(5)): pass
    """)
    assert len(run.main.batches()) == 3


def test_missing_points_cost_one_signal(train, tmp_path):
    """A torch without some patch points."""
    other = tmp_path / "other"
    (other / "torch").mkdir(parents=True)
    real = os.path.dirname(__import__("torch").__file__)
    (other / "torch" / "__init__.py").write_text(
        f"__path__ = [{real!r}]\n__file__ = {real + '/__init__.py'!r}\n"
        f"exec(compile(open(__file__).read(), __file__, 'exec'))\n"
        "import torch.serialization\n"
        "import torch.optim.optimizer as o\n"
        "del o.register_optimizer_step_pre_hook\n"
        "del torch.nn.utils.clip_grad.clip_grad_value_\n"
    )
    run = train(
        LOOP.format(rows=7),
        PYTHONPATH=os.pathsep.join([os.path.join(PACKAGE, "_inject"), str(other)]),
    )
    header = run.main.header
    assert "optimizer hooks" in header["missing"] and "clip_grad_value_" in header["missing"]
    assert header["signals"] & 7 == 3
    assert len(run.main.batches()) == len(run.main.of("backward")) == 7
    assert run.main.of("optimizer") == []


def _interpreters():
    found = sorted(glob.glob("/root/.pyenv/versions/3.*/bin/python3"))
    found += ["/usr/bin/python3", sys.executable]
    return [p for p in dict.fromkeys(found) if os.path.exists(p)]


@pytest.mark.parametrize("python", _interpreters())
def test_every_python(train, python):
    version = subprocess.check_output(
        [python, "-c", "import sys; print(sys.version_info[:2] >= (3, 9))"], text=True
    )
    if version.strip() != "True":
        pytest.skip("older than 3.9")
    run = train(
        """
        import leat, os
        from leat import _record
        assert _record.open() == 0
        for i in range(101):
            t0 = _record.now_ns()
            assert _record.record(_record.BACKWARD, 0, 0, 0, t0)
        for batch in leat.wrap_loader(range(23), name="numbers"):
            with leat.phase("think"):
                pass
            leat.step()
        for bad in ((), (1, 2, 3), (99, 0, 0, 0, 0), ("x", 0, 0, 0, 0), (1, 0, 0, -1, 0)):
            try:
                _record.record(*bad)
            except (TypeError, ValueError, OverflowError):
                continue
            raise AssertionError(bad)
        pid = os.fork()
        if not pid:
            with leat.phase("child"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
        """,
        preamble=False,
        python=python,
    )
    main = run.main
    assert len(main.of("backward")) == 101 and len(main.batches()) == len(main.of("step")) == 23
    assert len(main.spans("think")) == 23 and main.header["signals"] & 64
    (loader,) = main.loaders
    assert loader.dataset == "numbers" and loader.where.startswith("script.py:")
    (child,) = run.receiver.role("other")
    assert len(child.spans("child")) == len(child.records) == 1
