"""tools/: which packages setup.sh installs and which Pythons it refuses; how bench.sh sums up bars.

The scripts run in a copy of the tree, with a .venv whose python is a wrapper: it logs the arguments of
pip install instead of running it, and otherwise runs the real Python. Nothing is installed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
INSTALLED = {"torch": "2.13.0+cpu", "numpy": "1.26.4"}


def package(folder, name, version):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "a tree"
    shutil.copytree(ROOT / "tools", root / "tools")
    for name, version in INSTALLED.items():
        package(tmp_path / "packages", name, version)
    script(
        root / ".venv/bin/python",
        f'case "$*" in "-m pip install "*) echo "$*" >>"{tmp_path}/asked"; exit 0 ;; esac\n'
        f'exec "{sys.executable}" "$@"',
    )
    for forbidden in ("apt-get", "sudo"):
        script(tmp_path / "bin" / forbidden, "exit 1")
    return root


def run(tree, *command, **more):
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "TORCH")}
    env |= {
        "PATH": f"{tree.parent}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(tree.parent / "packages"),
        **more,
    }
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)


def requested(tree):
    """The requirements passed to pip install, of the packages in INSTALLED."""
    log = tree.parent / "asked"
    words = log.read_text().split() if log.exists() else []
    return [word for word in words if word.startswith(tuple(INSTALLED))]


@pytest.mark.parametrize(
    "wanted, there",
    [
        ("torch", True),
        ("torch==2.13.0", True),
        ("torch==2.13.0+cpu", True),
        ("torch==2.13.*", True),
        ("torch>=2.0,<3", True),
        ("torch==2.13.0+cu130", False),
        ("torch==2.8.0", False),
        ("torch<2", False),
        ("no-such-package-of-ours", False),
        ("./torch-2.13.0.whl", False),
    ],
)
def test_lacking_agrees_with_pip(tree, wanted, there):
    done = run(tree, ".venv/bin/python", "tools/lacking.py", wanted, "numpy")
    assert done.stdout.split() == ([] if there else [wanted]), done.stderr


def test_a_requested_torch_is_installed(tree):
    done = run(tree, "tools/setup.sh", "build", TORCH="torch==2.8.0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert requested(tree) == ["torch==2.8.0"]


@pytest.mark.parametrize("torch", ["", "torch==2.13.0"])
def test_a_fitting_torch_is_kept(tree, torch):
    done = run(tree, "tools/setup.sh", "build", TORCH=torch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert requested(tree) == []


def test_the_default_torch_has_a_version(tree):
    shutil.rmtree(next((tree.parent / "packages").glob("torch-*")))
    # The real .venv has torch too: make lacking.py search only the packages of this test.
    lacking = tree / "tools" / "lacking.py"
    path = repr(str(tree.parent / "packages"))
    lacking.write_text(
        f"import sys, pip._vendor.packaging.requirements\nsys.path = [{path}] + "
        f"[p for p in sys.path if 'site-packages' not in p]\n" + lacking.read_text()
    )
    done = run(tree, "tools/setup.sh", "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(requested(tree)) == 1 and requested(tree)[0].startswith("torch==")


def test_another_python_is_refused(tree):
    other = tree.parent / "bin" / "python3.77"
    script(other, "echo 3.77")
    done = run(tree, "tools/setup.sh", "build", PYTHON="python3.77")
    assert done.returncode == 1 and "rm -rf .venv" in done.stderr and "3.77" in done.stderr
    script(other, "exit 127")  # like a shim of a version manager
    done = run(tree, "tools/setup.sh", "build", PYTHON="python3.77")
    assert done.returncode == 1 and "does not run" in done.stderr
    assert requested(tree) == []
    same = run(tree, "tools/setup.sh", "build", PYTHON=sys.executable)
    assert same.returncode == 0, same.stdout + same.stderr


def bench(tree, name, *lines, status=0):
    (tree / "bench").mkdir(exist_ok=True)
    text = "".join(f"print({line!r})\n" for line in lines)
    (tree / "bench" / f"{name}.py").write_text(f"{text}raise SystemExit({status})\n")


LOADERS = ("loader", "loader_tar", "loader_hdf5", "loader_lmdb")


def test_bars_of_several_benches_are_summed(tree):
    for name in LOADERS:
        bench(tree, name, "a table", "3 of 3 bars held.")
    done = run(tree, "tools/bench.sh", "loader")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "In all 12 of 12 bars held."
    bench(tree, "loader_tar", "1 of 2 bars held.", status=1)
    done = run(tree, "tools/bench.sh", "loader")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "In all 10 of 11 bars held."


def test_a_bench_that_crashes_is_named(tree):
    for name in LOADERS:
        bench(tree, name, "3 of 3 bars held.")
    bench(tree, "loader_hdf5", "a table")
    done = run(tree, "tools/bench.sh", "loader")
    assert done.returncode == 1
    assert "without an end: bench/loader_hdf5.py" in done.stdout
    assert done.stdout.splitlines()[-1] == "In all 9 of 9 bars held."


def test_long_runs_are_passed_on(tree):
    (tree / "bench").mkdir()
    (tree / "bench" / "report_time.py").write_text("import sys; print(sys.argv[1:])\n")
    assert run(tree, "tools/bench.sh", "long").stdout == "['--long']\n"
    assert run(tree, "tools/bench.sh", "all").stdout.splitlines()[:2] == [
        "bench/report_time.py --long",
        "['--long']",
    ]
