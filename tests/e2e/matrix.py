"""The verdict matrix: real training scripts under `leat run`, each with one known cause or none.

    .venv/bin/python tests/e2e/matrix.py                    every case once
    .venv/bin/python tests/e2e/matrix.py --only straggler   those whose name holds the word
    .venv/bin/python tests/e2e/matrix.py --repeat 3         three times in a row
    .venv/bin/python tests/e2e/matrix.py --busy             with one core kept busy by another process
    .venv/bin/python tests/e2e/matrix.py --cases tests/gpu/cases    those that need a GPU
    taskset -c 2,3 python3 tests/e2e/matrix.py --part 2/7   a part of them, on two cores of a large machine

Two cases run at the same time, but for those that are about the CPU (key `cores`) and those that
run beside a case of their choice; with a core kept busy, one case at a time.

e2e_case.py defines a case, e2e_checks.py the checks. Exit status 0 when every
case of every round is right, 1 otherwise.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

from e2e_case import CASES, read_cases
from e2e_checks import check_run, make_validator

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE_LIMIT_S = 180  # a case takes 3 to 15 s; only a hang comes near this


class Result:
    def __init__(self, case):
        self.case, self.got, self.steps, self.wrong, self.seconds = case, "-", "-", [], 0.0

    @property
    def row(self):
        mark = "ok" if not self.wrong else "WRONG"
        return (
            f"{mark:5} {self.case.name:26} {self.case.expected:34.34} {self.got:34.34} "
            f"{self.steps:>9} {self.seconds:5.1f}s"
        )


def command_of(case, options, run_name, arguments):
    """As people write it, so without `--`: what stands before the first word that is no option is
    leat's, all after it the training's."""
    command = [options.leat, "run", "--quiet", "--logs-dir", str(options.logs)]
    command += ["--run-name", run_name]
    launch = case.get("launch", "plain").split()
    if launch[0] == "plain":
        return [*command, case.path.name, *arguments]
    if launch[0] == "torchrun":
        run = ["torchrun", "--standalone", "--nproc-per-node", launch[1]]
        return [*command, *run, case.path.name]
    if launch[0] == "bash":
        return [*command, *launch]
    if launch[0] == "module":
        return [*command, "python3", "-m", case.name]
    raise ValueError(f"{case.path}: unknown launch {launch[0]!r}")


def environment_of(case, options):
    """A case about GPUs gets a counterfeit of NVIDIA's library: its first device runs no process, its
    second the training or a process of another run. Real foreign GPUs are preferred."""
    wanted = case.get("gpus")
    if not wanted or (wanted == "foreign" and has_nvml()):
        return options.environment
    library = pathlib.Path(options.leat).parent / "tests" / "unit" / "observe" / "fake_nvml.so"
    folder = options.logs / "fake_nvml"
    folder.mkdir(exist_ok=True)
    shutil.copy(library, folder / "libnvidia-ml.so.1")
    pid = "children" if wanted == "own" else str(os.getpid())
    return {**options.environment, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML_PID": pid}


def has_nvml():
    try:
        return bool(ctypes.CDLL("libnvidia-ml.so.1"))
    except OSError:
        return False


def read_lines(stream, into, seen):
    for line in stream:
        into.append(line)
        seen(line)


def take_terminal():
    """In the child: stdin is a terminal and becomes the one whose Ctrl-C it gets."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def execute(case, command, environment):
    """Runs it in a session of its own, on a terminal of its own where Ctrl-C is to be pressed.
    Returns (status or None when it hung, stdout, stderr)."""
    keyboard, terminal = pty.openpty() if case.get("interrupt") else (None, subprocess.PIPE)
    process = subprocess.Popen(
        command,
        cwd=case.path.parent,
        env=environment,
        text=True,
        errors="replace",
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=take_terminal,
    )

    def press(line):
        if case.get("interrupt") and line.rstrip("\n") == case.get("interrupt"):
            os.write(keyboard, b"\x03")

    out, err = [], []
    readers = [
        threading.Thread(target=read_lines, args=(process.stdout, out, press)),
        threading.Thread(target=read_lines, args=(process.stderr, err, lambda line: None)),
    ]
    for reader in readers:
        reader.start()
    if keyboard is None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(case.get("stdin", "") + "\n")
            process.stdin.close()
    try:
        status = process.wait(CASE_LIMIT_S)
    except subprocess.TimeoutExpired:
        status = None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for reader in readers:
        reader.join(10)
    if keyboard is not None:
        os.close(keyboard)
        os.close(terminal)
    return status, "".join(out), "".join(err)


def run_once(case, options, run_name, arguments=()):
    """Returns (summary or None, truth as text, complaints)."""
    command = command_of(case, options, run_name, list(arguments))
    status, stdout, stderr = execute(case, command, environment_of(case, options))
    if status is None:
        return None, "-", [f"still running after {CASE_LIMIT_S} s"]
    folder = options.logs / run_name
    (options.logs / f"{run_name}.stderr").write_text(stderr)
    summary, wrong = check_run(case, folder, options.validator, status, stdout, stderr)
    if wrong and stderr.strip():
        wrong.append("stderr ends: " + " | ".join(stderr.strip().splitlines()[-3:])[-300:])
    return summary, "-" if summary is None else str(summary["step_time"]["steps"]), wrong


def run_compare(case, options, before, after):
    command = [options.leat, "compare", "--json", "--fail-on", "regression"]
    command += [str(options.logs / before), str(options.logs / after)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    try:
        kind = json.loads(done.stdout)["verdict"]["kind"]
    except (ValueError, KeyError, TypeError):
        return "-", [f"leat compare gave no verdict: {(done.stderr or done.stdout)[-200:]!r}"]
    wrong = []
    if kind not in case.list("compare"):
        wrong.append(f"compare says {kind} instead of {case.get('compare')}")
    if done.returncode != int(case.get("compare_exit", 0)):
        wrong.append(f"compare exits with {done.returncode} instead of {case.get('compare_exit')}")
    return kind, wrong


def describe(summary):
    if summary is None:
        return "no summary"
    verdict = summary["verdict"]
    finding = next((f for f in summary["findings"] if f["kind"] == verdict["kind"]), None)
    text = verdict["kind"]
    if finding and finding["cause"]:
        text += " " + finding["cause"]
    if finding and finding["scope"]["rank"] is not None:
        text += f" r{finding['scope']['rank']}"
    return text


def run_case(case, options, round_number):
    result = Result(case)
    start = time.monotonic()
    name = f"{case.name}-{round_number}"
    try:
        if case.get("compare"):
            summary, _, first = run_once(case, options, name + "-a", case.get("before").split())
            _, result.steps, second = run_once(
                case, options, name + "-b", case.get("after").split()
            )
            kind, third = run_compare(case, options, name + "-a", name + "-b")
            result.wrong = first + second + third
            result.got = f"{describe(summary)} {kind}"
        else:
            summary, result.steps, result.wrong = run_once(case, options, name)
            result.got = describe(summary)
    except (KeyError, TypeError, OSError) as error:
        result.wrong.append(f"{type(error).__name__}: {error}")
    result.seconds = time.monotonic() - start
    return result


def run_together(cases, options, round_number):
    if len(cases) == 1:
        return [run_case(cases[0], options, round_number)]
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(lambda case: run_case(case, options, round_number), cases))


def group_cases(cases, options):
    """Cases that belong beside each other run as one group, all others alone."""
    by_name = {case.name: case for case in read_cases(options.cases)}
    groups, taken = [], set()
    for case in cases:
        if case.name in taken:
            continue
        beside = case.get("beside")
        group = [case, by_name[beside]] if beside else [case]
        taken.update(member.name for member in group)
        groups.append(group)
    return groups


def run_groups(groups, jobs, options, round_number):
    results = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_together, group, options, round_number) for group in groups]
        for done in concurrent.futures.as_completed(waiting):
            for result in done.result():
                results.append(result)
                print(result.row, flush=True)
                for sentence in result.wrong:
                    print(f"      {sentence}", flush=True)
    return results


def split_groups(groups):
    """Those that may run beside others, and those that may not."""
    alone = [group for group in groups if len(group) > 1 or group[0].get("cores") == "all"]
    return [group for group in groups if group not in alone], alone


def run_round(cases, options, round_number):
    beside, alone = split_groups(group_cases(cases, options))
    results = run_groups(beside, options.jobs, options, round_number)
    return results + run_groups(alone, 1, options, round_number)


@contextlib.contextmanager
def busy_core(wanted):
    """Keeps one core busy by a process that has nothing to do with any run."""
    if not wanted:
        yield
        return
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Unchecked:
    def iter_errors(self, summary):
        return []


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--leat", default=str(ROOT / "build" / "leat"))
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"))
    parser.add_argument("--cases", type=pathlib.Path, default=CASES, help="folder of the scripts")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--part", default="1/1", help="2/7: every seventh case from the second on")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile")
    parser.add_argument(
        "--without-schema", action="store_true", help="go on where there is no jsonschema package"
    )
    parser.add_argument("--jobs", type=int, help="cases at the same time (default 2; busy: 1)")
    parser.add_argument("--logs", type=pathlib.Path, help="keep the runs in this new folder")
    options = parser.parse_args()
    if not shutil.which(options.leat):
        parser.error(f"there is no {options.leat}: build it first (make build)")
    options.cases = options.cases.resolve()
    options.jobs = options.jobs or (1 if options.busy else 2)
    options.leat = str(pathlib.Path(options.leat).resolve())
    binaries = pathlib.Path(options.python).absolute().parent
    options.environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    options.environment["PYTHONPATH"] = str(ROOT / "tests" / "e2e")  # training.py
    options.environment["PATH"] = f"{binaries}:{os.environ['PATH']}"
    options.validator = Unchecked() if options.without_schema else make_validator()
    return options


def print_score(results):
    right = [result for result in results if not result.wrong]
    healthy = [result for result in results if result.case.healthy]
    silent = [result for result in healthy if not result.wrong]
    mistakes = {result.case.get("mistake") for result in results} - {None}
    made = {result.case.get("mistake") for result in results if result.wrong} - {None}
    print(f"healthy runs left in peace: {len(silent)} of {len(healthy)}")
    print(f"known mistakes of others avoided: {len(mistakes - made)} of {len(mistakes)}")
    print(f"{len(right)} of {len(results)} right")
    print(f"{len(right)} passed, {len(results) - len(right)} failed")


def main():
    options = parse_options()
    part, parts = map(int, options.part.split("/"))
    cases = [case for case in read_cases(options.cases) if options.only in case.name][
        part - 1 :: parts
    ]
    if not cases:
        sys.exit(f"no case has {options.only!r} in its name")
    made = options.logs is None
    options.logs = pathlib.Path(tempfile.mkdtemp(prefix="leat-e2e-") if made else options.logs)
    options.logs = options.logs.resolve()
    options.logs.mkdir(parents=True, exist_ok=True)
    results = []
    with busy_core(options.busy):
        for round_number in range(1, options.repeat + 1):
            title = f"round {round_number} of {options.repeat}, {len(cases)} cases"
            print(title + (", one core kept busy" if options.busy else ""), flush=True)
            print(f"{'':5} {'case':26} {'expected':34} {'got':34} {'steps':>9}")
            results += run_round(cases, options, round_number)
    print_score(results)
    failed = any(result.wrong for result in results)
    if made and not failed:
        shutil.rmtree(options.logs)
    else:
        print(f"the runs are in {options.logs}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
