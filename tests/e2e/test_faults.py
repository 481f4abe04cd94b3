"""Faults, tried for real: signals, kills, full disks, missing rights, broken children.

Each test runs the real `leat run` around a real process and looks at three things: the training was
not disturbed (same output, same exit status), nothing was lost, and there is one clear sentence.
"""

import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from e2e_checks import make_validator

ROOT = Path(__file__).resolve().parents[2]
LEAT = os.environ.get("LEAT", str(ROOT / "build" / "leat"))
VALIDATOR = make_validator()

TRAIN = textwrap.dedent(
    """
    import sys, time, torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_num_threads(1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 29
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.002
    data = DataLoader(TensorDataset(torch.randn(8 * steps, 8), torch.randn(8 * steps, 1)), batch_size=8)
    model = torch.nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for i, (x, y) in enumerate(data):
        loss = (model(x) - y).pow(2).mean()
        time.sleep(pause)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i == 4:
            print("five steps made", flush=True)
    print(f"steps={steps}", flush=True)
    """
)


@pytest.fixture
def box(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LEAT_")}
    env["PATH"] = str(Path(sys.executable).parent) + os.pathsep + env["PATH"]
    env.update(more)
    return env


def leat(box, *words, timeout=120, **kw):
    kw.setdefault("env", environment())
    return subprocess.run(
        [LEAT, "run", *words], cwd=box, capture_output=True, timeout=timeout, **kw
    )


def read_summary(path):
    """A summary, after it was held against its schema."""
    result = json.loads(path.read_text())
    wrong = [f"{e.json_path}: {e.message[:200]}" for e in VALIDATOR.iter_errors(result)]
    assert not wrong, f"{path}: {wrong}"
    return result


def summary(box, name="r"):
    return read_summary(box / "logs" / name / "final_summary.json")


def wait_for(stream, words, seconds=60):
    """Reads a pipe until the words came by; gives what was read."""
    seen = b""
    end = time.monotonic() + seconds
    while words not in seen:
        ready, _, _ = select.select([stream], [], [], end - time.monotonic())
        assert ready, f"nothing came within {seconds} s: {seen!r}"
        got = os.read(stream.fileno(), 65536)
        assert got, f"ended before {words!r}: {seen!r}"
        seen += got
    return seen


@pytest.mark.parametrize("status", [0, 1, 7, 120, 255])
def test_exit_status_passes_through(box, status):
    got = leat(box, "--run-name", "r", "--", sys.executable, "-c", f"raise SystemExit({status})")
    assert got.returncode == status
    run = summary(box)["run"]
    assert run["exit_status"] == status
    assert run["ended"] == ("completed" if status == 0 else "failed")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_death_by_signal_passes_through(box, number):
    got = leat(box, "--run-name", "r", "--", "bash", "-c", f"kill -{int(number)} $$")
    assert got.returncode == -number
    run = summary(box)["run"]
    assert (run["ended"], run["signal"], run["exit_status"]) == ("killed", number, None)
    assert number.name.encode() in got.stderr or str(int(number)).encode() in got.stderr


def test_streams_pass_through_untouched(box):
    noise = bytes(range(256)) * 1000
    code = "cat; printf 'to stderr' >&2"
    got = leat(box, "--quiet", "--", "bash", "-c", code, input=noise)
    assert got.stdout == noise
    assert got.stderr == b"to stderr"


def test_own_words_come_after_on_stderr(box):
    got = leat(box, "train.py")
    assert got.returncode == 0, got.stderr
    assert got.stdout == b"five steps made\nsteps=29\n"
    assert got.stderr


def json_line(stderr):
    """What a script reads of it: tail -n 1."""
    return json.loads(stderr.splitlines()[-1])


def test_json_is_the_last_line_of_stderr(box):
    code = TRAIN + 'print("a line without an end", end="", file=sys.stderr)'
    (box / "talks.py").write_text(code)
    got = leat(box, "--json", "--run-name", "r", "talks.py")
    assert (got.returncode, got.stdout) == (0, b"five steps made\nsteps=29\n"), got.stderr
    assert json_line(got.stderr) == summary(box)
    assert b"a line without an end\n" in got.stderr


def test_json_alone_is_all_of_stderr(box):
    got = leat(box, "--json", "--run-name", "r", "--", "bash", "-c", "echo to stdout; exit 3")
    assert (got.returncode, got.stdout) == (3, b"to stdout\n")
    assert json.loads(got.stderr) == summary(box)


def test_json_comes_after_what_went_wrong(box):
    (box / "file").write_text("")
    words = ["--json", "--run-name", "r", "--logs-dir", "file", "train.py"]
    got = leat(box, *words, env=environment(TMPDIR=str(box)))
    assert got.returncode == 0, got.stderr
    where = re.search(rb"^leat: .*The results are in (\S+)\.$", got.stderr, re.M)
    assert where, got.stderr
    written = read_summary(Path(where[1].decode()) / "final_summary.json")
    assert json_line(got.stderr) == written
    assert written["step_time"]["steps"] == 29


def test_quiet_is_quiet_with_json_too(box):
    (box / "file").write_text("")
    got = leat(box, "--quiet", "--json", "--run-name", "r", "--", "true")
    assert (got.returncode, got.stdout, got.stderr) == (0, b"", b"")
    assert summary(box)["run"]["ended"] == "completed"
    words = ["--quiet", "--json", "--logs-dir", "file", "--", "true"]
    got = leat(box, *words, env=environment(TMPDIR=str(box)))
    assert got.returncode == 0
    assert re.fullmatch(rb"leat: The logs folder file cannot be written .*\n", got.stderr)


def test_steps_are_exact_and_stay_after_sigkill(box):
    code = TRAIN.replace(
        "if i == 4:", "if i == 22:\n        import os; os.kill(os.getpid(), 9)\n    if i == 4:"
    )
    (box / "killed.py").write_text(code)
    got = leat(box, "--run-name", "r", "killed.py")
    assert got.returncode == -9
    result = summary(box)
    assert result["step_time"]["steps"] == 23
    assert (result["run"]["ended"], result["run"]["signal"]) == ("killed", 9)


def test_exception_is_named_and_its_traceback_stays(box):
    (box / "raises.py").write_text(
        TRAIN.replace("if i == 4:", "if i == 10:\n        1 / 0\n    if i == 4:")
    )
    got = leat(box, "--run-name", "r", "raises.py")
    assert got.returncode == 1
    assert b"ZeroDivisionError" in got.stderr.split(b"Traceback")[1]
    result = summary(box)
    assert result["run"]["ended"] == "failed"
    assert result["step_time"]["steps"] == 11
    assert "ZeroDivisionError" in (box / "logs/r/final_summary.txt").read_text()


def torchrun(box, code):
    """Runs two ranks of `code`, which has `rank` and makes steps for a minute."""
    (box / "ranks.py").write_text("import os; rank = int(os.environ['RANK'])\n" + code)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py"]
    return leat(box, "--run-name", "r", *words, "10000", "0.005")


@pytest.mark.parametrize("early", [False, True])
def test_a_rank_killed_under_torchrun_is_named(box, early):
    """torchrun ends with exit status 1, after it has ended the other rank by SIGTERM."""
    kill = "import signal; rank == 1 and os.kill(os.getpid(), signal.SIGKILL)"
    step = "if i == 4:" if not early else "if i == 0:"
    code = TRAIN.replace("if i == 4:", f"{step}\n        {kill}\n    if i == 4:")
    got = torchrun(box, code)
    run = summary(box)["run"]
    assert (got.returncode, run["ended"], run["exit_status"]) == (1, "failed", 1), got.stderr
    assert re.fullmatch(r"rank 1 \(process \d+\) was killed by SIGKILL", run["exception"])
    text = (box / "logs/r/final_summary.txt").read_text()
    assert run["exception"] in " ".join(text.split())


def test_a_rank_that_torchrun_ended_is_not_the_cause(box):
    code = TRAIN.replace("if i == 4:", "if i == 9 and rank == 1:\n        1 / 0\n    if i == 4:")
    assert torchrun(box, code).returncode == 1
    run = summary(box)["run"]
    assert run["ended"] == "failed" and "ZeroDivisionError" in run["exception"]


def start(box, *words, **kw):
    return subprocess.Popen(
        [LEAT, "run", *words],
        cwd=box,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kw,
    )


@pytest.mark.parametrize("own_group", [True, False])
@pytest.mark.parametrize(
    "number, ended", [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "killed")]
)
def test_signal_to_leat_reaches_the_training(box, number, ended, own_group):
    p = start(box, "--run-name", "r", "train.py", "100000", start_new_session=own_group)
    wait_for(p.stdout, b"five steps")
    p.send_signal(number)
    _, err = p.communicate(timeout=60)
    assert p.returncode == -number, err
    assert summary(box)["run"]["ended"] == ended
    assert summary(box)["step_time"]["steps"] >= 5


def test_signal_to_the_group_comes_once(box):
    count = textwrap.dedent(
        """
        import signal, time
        n = 0
        def more(*_):
            global n
            n += 1
        signal.signal(signal.SIGTERM, more)
        print("ready", flush=True)
        end = time.monotonic() + 4
        while time.monotonic() < end: time.sleep(0.05)
        print("signals", n, flush=True)
        """
    )
    (box / "count.py").write_text(count)
    got = subprocess.run(
        ["timeout", "-s", "TERM", "2", LEAT, "run", "--quiet", "count.py"],
        cwd=box,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert b"signals 1" in got.stdout


@pytest.mark.parametrize("to_group, times", [(True, 7), (False, 7)])
def test_every_signal_comes_once(box, to_group, times):
    count = textwrap.dedent(
        """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM])
        print("ready", flush=True)
        n = 0
        while signal.sigwait([signal.SIGUSR1, signal.SIGTERM]) == signal.SIGUSR1:
            n += 1
            print("heard", n, flush=True)
        print("signals", n, flush=True)
        """
    )
    (box / "count.py").write_text(count)
    p = start(box, "--run-name", "r", "count.py", start_new_session=True)
    wait_for(p.stdout, b"ready")
    for i in range(times):
        (os.killpg if to_group else os.kill)(p.pid, signal.SIGUSR1)
        wait_for(p.stdout, b"heard %d\n" % (i + 1))
        time.sleep(0.15)  # a second one that came of the first would be heard by now
    os.kill(p.pid, signal.SIGTERM)
    out, err = p.communicate(timeout=60)
    assert out == b"signals %d\n" % times, err
    assert p.returncode == 0


def test_a_parent_that_ignores_its_children(box):
    """Whoever starts leat with SIGCHLD ignored still gets the training's status, and so does it."""
    code = "import signal; print(signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN); raise SystemExit(9)"
    got = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
            "os.execv(sys.argv[1], sys.argv[1:])",
            *(LEAT, "run", "--quiet", "--", sys.executable, "-c", code),
        ],
        cwd=box,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert (got.returncode, got.stdout) == (9, b"True\n")


def test_ctrl_c_on_a_terminal(box):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(box)
        os.execve(LEAT, [LEAT, "run", "--run-name", "r", "train.py", "100000"], environment())
    seen = b""
    while b"five steps" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while True:
            seen += os.read(terminal, 4096)
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
    assert seen.count(b"Traceback") == 1
    assert summary(box)["run"]["ended"] == "interrupted"


def test_run_name_that_exists_is_never_overwritten(box):
    assert leat(box, "--run-name", "r", "--", "true").returncode == 0
    before = {p.name: p.read_bytes() for p in (box / "logs/r").iterdir()}
    got = leat(box, "--run-name", "r", "--", "touch", str(box / "ran"))
    assert got.returncode == 2
    assert b'"r" exists' in got.stderr and b"--run-name" in got.stderr
    assert not (box / "ran").exists()
    assert before == {p.name: p.read_bytes() for p in (box / "logs/r").iterdir()}


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 300])
def test_run_name_that_cannot_be_one(box, name):
    got = leat(box, "--run-name", name, "--", "touch", "began")
    assert got.returncode == 2 and got.stderr.startswith(b"leat")
    assert not (box / "began").exists() and not (box / "logs").exists()


def test_logs_folder_that_cannot_be_written(box):
    (box / "file").write_text("")
    got = leat(
        box, "--run-name", "r", "--logs-dir", "file", "train.py", env=environment(TMPDIR=str(box))
    )
    assert got.returncode == 0
    assert got.stdout.endswith(b"steps=29\n")
    where = re.search(rb"The results are in (\S+)\.", got.stderr)
    assert where, got.stderr
    assert read_summary(Path(where[1].decode()) / "final_summary.json")["step_time"]["steps"] == 29


def limit_files(soft, hard):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def read_rows(folder):
    """The steps in run.db, and the rows that are counted as lost."""
    with sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True) as db:
        (steps,) = db.execute("SELECT count(*) FROM steps").fetchone()
        lost = dict(db.execute("SELECT what, n FROM lost"))
    return steps, lost.get("rows", 0)


def test_file_size_limit_of_leat_loses_nothing(box):
    """The training raises the soft limit for itself, as it must to write its own checkpoints; leat,
    too, whose run.db grows beyond it."""
    command = ["bash", "-c", "ulimit -S -f unlimited; exec python train.py 1999 0.001"]
    limit = limit_files(160_000, resource.RLIM_INFINITY)
    got = leat(box, "--run-name", "r", *command, preexec_fn=limit)
    assert got.returncode == 0, got.stderr
    assert got.stdout.endswith(b"steps=1999\n")
    assert summary(box)["step_time"]["steps"] == 1999
    assert (box / "logs" / "r" / "run.db").stat().st_size > 160_000
    assert read_rows(box / "logs" / "r") == (1999, 0)


def test_a_soft_file_size_limit_below_an_empty_run_db(box):
    """The limit is also below what a process records into, so the training makes no steps for leat."""
    limit = limit_files(40_000, resource.RLIM_INFINITY)
    got = leat(box, "--run-name", "r", "train.py", preexec_fn=limit)
    assert got.returncode == 0 and got.stdout.endswith(b"steps=29\n"), got.stderr
    assert b"40000 bytes (ulimit -f)" in got.stderr and b"run.db" not in got.stderr
    assert summary(box)["run"]["ended"] == "completed"
    show = ["bash", "-c", "ulimit -S -f"]
    got = leat(box, "--quiet", *show, preexec_fn=limit)
    assert got.stdout == b"39\n"  # KiB: the training's limit stays
    raised = ["bash", "-c", "ulimit -S -f unlimited; exec python train.py"]
    assert leat(box, "--run-name", "all", *raised, preexec_fn=limit).returncode == 0
    assert read_rows(box / "logs" / "all") == (29, 0)


def test_file_size_limit_of_the_training_is_named(box):
    """Nothing can be recorded under it, and the training must not notice."""
    got = leat(box, "--run-name", "r", "train.py", preexec_fn=limit_files(40_000, 40_000))
    assert got.returncode == 0, got.stderr
    assert got.stdout.endswith(b"steps=29\n")
    assert b"40000 bytes (ulimit -f)" in got.stderr and b"logs/r/run.db" in got.stderr
    assert not (box / "logs" / "r" / "final_summary.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_during_the_run_is_counted(box):
    (box / "logs").mkdir()
    # 1499 steps alone take 100 kB, and the empty database some 100 kB: they cannot fit.
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "t", box / "logs"]).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        got = leat(box, "--run-name", "r", "train.py", "1499", "0.001")
        shutil.copytree(box / "logs" / "r", box / "copy")
    finally:
        subprocess.run(["umount", box / "logs"], check=True)
    assert got.returncode == 0 and got.stdout.endswith(b"steps=1499\n")
    steps, lost = read_rows(box / "copy")
    assert 0 < steps < 1499 <= steps + lost
    assert f"logs/r/run.db lacks {lost} rows".encode() in got.stderr
    assert read_summary(box / "copy" / "final_summary.json")["step_time"]["steps"] == steps


def limit_memory(root, name, limit_bytes):
    """A cgroup that gets no more memory and no swap, of version 1 or 2, whichever has the memory here.
    OSError where none can be made, as in most containers."""
    old = (root / "memory").is_dir()
    group = root / ("memory" if old else "") / name
    if not old and "memory" not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text("+memory")
    group.mkdir(exist_ok=True)
    try:
        if old:
            (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (group / "memory.max").write_text(str(limit_bytes))
            (group / "memory.swap.max").write_text("0")
    except OSError:
        group.rmdir()
        raise
    return group


def test_memory_is_limited_in_both_versions_of_cgroups(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "memory").mkdir(parents=True)
    group = limit_memory(old, "g", 1000)
    assert {p.name: p.read_text() for p in group.iterdir()} == {"memory.limit_in_bytes": "1000"}
    new.mkdir()
    (new / "cgroup.subtree_control").write_text("cpu pids\n")
    group = limit_memory(new, "g", 1000)
    assert {p.name: p.read_text() for p in group.iterdir()} == {
        "memory.max": "1000",
        "memory.swap.max": "0",
    }
    assert (new / "cgroup.subtree_control").read_text() == "+memory"
    with pytest.raises(OSError):
        limit_memory(tmp_path / "none", "g", 1000)


def test_oom_kill_is_named(box):
    try:
        group = limit_memory(Path("/sys/fs/cgroup"), f"leat-test-oom-{os.getpid()}", 600 << 20)
    except OSError as why:
        pytest.skip(f"no memory cgroup can be made: {why}")
    code = TRAIN.replace("if i == 4:", "if i == 20: hog = b'x' * (2 << 30)\n    if i == 4:")
    (box / "hog.py").write_text(code)
    try:
        got = leat(
            box,
            "--run-name",
            "r",
            "--",
            "bash",
            "-c",
            f"echo $$ > {group}/cgroup.procs; exec python hog.py",
        )
    finally:
        time.sleep(0.2)  # until the kernel has released the ended process
        group.rmdir()
    assert got.returncode == -9
    result = summary(box)
    assert result["run"]["ended"] == "killed"
    assert result["verdict"]["kind"] == "OOM_KILL", result["verdict"]
    assert result["step_time"]["steps"] == 21


def test_child_that_replaces_pythonpath_is_named(box):
    got = leat(
        box, "--run-name", "r", "--", "bash", "-c", "PYTHONPATH=/tmp exec python train.py 401"
    )
    assert got.returncode == 0 and got.stdout.endswith(b"steps=401\n")
    result = summary(box)
    assert result["verdict"]["kind"] == "INSUFFICIENT_DATA"
    assert "PYTHONPATH" in (box / "logs/r/final_summary.txt").read_text()


def test_child_that_replaces_ld_preload_is_no_matter(box):
    got = leat(box, "--run-name", "r", "--", "bash", "-c", "LD_PRELOAD= exec python train.py")
    assert got.returncode == 0
    assert summary(box)["step_time"]["steps"] == 29


def test_memory_that_is_cut_costs_only_itself(box):
    liar = textwrap.dedent(
        """
        import os, socket, struct, array
        fd = os.memfd_create("cut", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 4096)
        import fcntl
        fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
        for payload in (struct.pack("<QIi", 0x314345525441454C, 1, os.getpid()), b"x", b"y" * 500):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(os.environ["LEAT_SOCKET"])
            s.sendmsg([payload], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            s.close()
        """
    )
    (box / "liar.py").write_text(liar + TRAIN)
    got = leat(box, "--run-name", "r", "liar.py")
    assert got.returncode == 0 and got.stdout.endswith(b"steps=29\n")
    assert b"4096 bytes" in got.stderr
    assert summary(box)["step_time"]["steps"] == 29


def test_command_that_is_not_there(box):
    got = leat(box, "--run-name", "r", "--", "no-such-command")
    assert got.returncode == 127 and b"no-such-command cannot be run" in got.stderr
    assert not (box / "logs" / "r").exists()
    got = leat(box, "nothing.py")
    assert got.returncode == 1 and b"nothing.py" in got.stderr
    got = leat(box, "--", str(box))
    assert got.returncode == 126


def test_script_without_torch_just_runs(box):
    (box / "plain.py").write_text("print('hello')")
    got = leat(box, "--run-name", "r", "plain.py")
    assert got.returncode == 0 and got.stdout == b"hello\n"
    result = summary(box)
    assert result["verdict"]["kind"] == "INSUFFICIENT_DATA"
    assert "torch" in result["verdict"]["summary"]


def test_two_runs_at_once_do_not_mix(box):
    first = start(box, "--run-name", "a", "train.py", "101")
    second = start(box, "--run-name", "b", "train.py", "53")
    for p in (first, second):
        p.communicate(timeout=120)
        assert p.returncode == 0
    assert summary(box, "a")["step_time"]["steps"] == 101
    assert summary(box, "b")["step_time"]["steps"] == 53


def test_training_outlives_leat(box):
    p = start(
        box, "--run-name", "r", "--", "bash", "-c", "python train.py 1009 0.003 > out; touch done"
    )
    end = time.monotonic() + 60
    while not ((box / "out").exists() and (box / "out").read_text()):
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(1.5)  # one commit of the database
    p.kill()
    p.communicate()
    while not (box / "done").exists():
        assert time.monotonic() < end, "the training died with leat"
        time.sleep(0.1)
    assert (box / "out").read_text().endswith("steps=1009\n")
    before = {p.name: p.read_bytes() for p in (box / "logs/r").iterdir()}
    assert "final_summary.json" not in before
    got = subprocess.run([LEAT, "view", "r"], cwd=box, capture_output=True, timeout=60)
    assert got.returncode == 0 and b"has no recorded end" in got.stdout, got
    assert before == {p.name: p.read_bytes() for p in (box / "logs/r").iterdir()}
    copy = shutil.copytree(box / "logs" / "r", box / "copy")
    with sqlite3.connect(copy / "run.db") as db:
        assert db.execute("SELECT count(*) FROM steps").fetchone()[0] > 0


def test_max_steps_is_exact_and_training_goes_on(box):
    got = leat(box, "--run-name", "r", "--max-steps", "23", "train.py", "997", "0.002")
    assert got.returncode == 0 and got.stdout.endswith(b"steps=997\n")
    assert summary(box)["step_time"]["steps"] == 23


@pytest.mark.parametrize(
    "word", ["--max-steps=0", "--max-steps=x", "--logs-dir=", "--frobnicate", "--run-name"]
)
def test_usage_errors(box, word):
    got = leat(box, word)
    assert got.returncode == 2
    assert b"leat run --help" in got.stderr


def test_odd_folders(box):
    odd = box / "a b%20#?'\"é"
    odd.mkdir()
    (odd / "train me.py").write_text(TRAIN)
    got = leat(odd, "--run-name", "r ü", "train me.py")
    assert got.returncode == 0, got.stderr
    assert summary(odd, "r ü")["step_time"]["steps"] == 29
