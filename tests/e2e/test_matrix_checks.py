"""The matrix must be able to fail: a right run passes its checks, and each wrong thing is named."""

import copy
import json
import pathlib
import sqlite3
import subprocess
import sys
import types

import matrix
import pytest
from e2e_case import CASES, Case, read_case, read_cases, read_truth
from e2e_checks import check_run, make_validator

RIGHT = {
    "run": {"ended": "completed", "exit_status": 0, "signal": None},
    "verdict": {"kind": "INPUT_BOUND", "severity": "critical", "summary": "input is slow"},
    "findings": [
        {
            "kind": "INPUT_BOUND",
            "severity": "critical",
            "cause": "NO_OVERLAP",
            "scope": {"rank": 0, "worker": None},
            "where": [{"file": "/home/me/case.py", "line": 4, "share": 0.8}],
            "evidence": [{"what": "share", "value": 0.7}],
        }
    ],
    "step_time": {
        "steps": 3,
        "median": 0.001,
        "compile_steps": 2,
        "compile_ms": 0.003,
        "ranks": {"0": {"steps": 3, "phases": {"input": {"share": 1.0}}}},
    },
}
KEYS = {
    "expect": "INPUT_BOUND",
    "cause": "NO_OVERLAP",
    "rank": "0",
    "says": "slow",
    "line": "time.sleep(",
    "share": "0.7",
}
GPUS = {"expect": "INPUT_BOUND", "gpus": "foreign"}
# Why the input of torch's loader is slow, as docs/verdicts.md has it.
CAUSES = set(
    """TOO_FEW_WORKERS SLOW_SAMPLE SLOW_COLLATE SLOW_HANDOVER SLOW_STORAGE CPU_OVERSUBSCRIBED
    UNEVEN_WORKERS WORKER_STARTUP NO_OVERLAP PER_SAMPLE_OVERHEAD""".split()
)
SCRIPT = """# e2e: line = time.sleep(
import time

time.sleep(1)
"""


GPU_CASES = pathlib.Path(__file__).parents[1] / "gpu" / "cases"


class Anything:
    def iter_errors(self, summary):
        return []


def check(
    tmp_path,
    summary,
    keys=KEYS,
    rows=3,
    short_ns=0,
    stdout="steps=3 batches=3\n",
    status=0,
    lost="samples",
    gpus=(),
):
    (tmp_path / "final_summary.json").write_text(json.dumps(summary))
    (tmp_path / "final_summary.txt").write_text("text")
    db = sqlite3.connect(tmp_path / "run.db")
    phases = "input_ns, h2d_ns, forward_ns, backward_ns, optimizer_ns, sync_ns, other_ns"
    db.execute(f"CREATE TABLE steps (id, end_ns, wall_ns, {phases}, micro_steps)")
    db.execute("CREATE TABLE processes (role)")
    db.execute("CREATE TABLE lost (what, n, why)")
    db.execute("INSERT INTO lost VALUES ('notes', 1, 'all is there')")
    db.execute("INSERT INTO lost VALUES (?, 1, 'gone')", (lost,))
    db.execute("CREATE TABLE gpu_samples (gpu)")
    db.executemany("INSERT INTO gpu_samples VALUES (?)", [(gpu,) for gpu in gpus])
    db.execute("CREATE TABLE span_totals (name, total_ns)")
    db.execute("CREATE TABLE loaders (use)")
    db.execute("INSERT INTO processes VALUES ('main')")
    for i in range(rows):
        row = (i, 1000 * (i + 1), 1000, 700 - short_ns, None, 100, 100, 50, None, 50, 1)
        db.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.commit()
    db.close()
    path = tmp_path / "case.py"
    path.write_text(SCRIPT)
    case = Case("case", path, "", keys)
    return check_run(case, tmp_path, Anything(), status, stdout, "")[1]


def test_a_right_run_passes(tmp_path):
    assert check(tmp_path, RIGHT, {**KEYS, "compiles": "2", "gpus": "foreign"}) == []


def test_compile_steps_that_cost_nothing_are_named(tmp_path):
    summary = change(("step_time", "compile_ms"), 0.002)
    wrong = check(tmp_path, summary, {**KEYS, "compiles": "2"})
    assert wrong == ["2 compile steps took 0.002 ms, no more than others"]


def change(path, value):
    summary = copy.deepcopy(RIGHT)
    at = summary
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return summary


@pytest.mark.parametrize(
    "path, value, word",
    [
        (("verdict", "kind"), "WAIT_HEAVY", "verdict WAIT_HEAVY"),
        (("findings", 0, "cause"), "SLOW_SAMPLE", "cause SLOW_SAMPLE"),
        (("findings", 0, "scope", "rank"), 1, "names rank 1"),
        (("findings", 0, "evidence"), [], "no evidence"),
        (("findings", 0, "where"), [], "line 4 is not named"),
        (("findings", 0, "where", 0, "line"), 3, "line 4 is not named, but [(3, 0.8)]"),
        (("findings", 0, "where", 0, "share"), 0.6, "share of 0.6"),
        (("findings", 0, "where", 0, "share"), None, "share of None"),
        (("verdict", "summary"), "all is well", "does not say"),
        (("run", "ended"), "failed", "ended failed"),
        (("step_time", "ranks", "0", "steps"), 4, "4 steps in the summary"),
        (("step_time", "ranks", "0", "phases", "input", "share"), 0.99, "sum to 0.99"),
    ],
)
def test_a_wrong_summary_is_named(tmp_path, path, value, word):
    wrong = check(tmp_path, change(path, value))
    assert any(word in sentence for sentence in wrong), wrong


@pytest.mark.parametrize(
    "changed, word",
    [
        ({"rows": 2}, "2 steps in run.db"),
        ({"short_ns": 2}, "phases sum to 998"),
        ({"stdout": "steps=3 batches=4\n"}, "3 batches"),
        ({"stdout": "leat: hello\nsteps=3\n"}, "foreign line"),
        ({"stdout": ""}, "lacks the script's own count"),
        ({"status": 1}, "exit status 1"),
        ({"keys": {"expect": "INPUT_BOUND", "healthy": "yes"}}, "was reported"),
        ({"keys": {"expect": "INPUT_BOUND", "forbid": "INPUT_BOUND"}}, "was reported"),
        ({"keys": {"expect": "INPUT_BOUND", "steps": "none"}}, "makes none"),
        ({"keys": {"expect": "INPUT_BOUND", "evaluates": "1"}}, "0.00 s of evaluation"),
        ({"keys": {"expect": "INPUT_BOUND", "signal": "9"}}, "exit status 0"),
        ({"keys": {"expect": "INPUT_BOUND", "worker": "2"}}, "names worker None"),
        ({"keys": {"expect": "INPUT_BOUND", "compiles": "1"}}, "2 compile steps instead of 1"),
        ({"keys": {"expect": "INPUT_BOUND", "gpus": "own"}}, "the GPUs []"),
        ({"keys": GPUS, "gpus": ["GPU-1"]}, "the GPUs ['GPU-1'] instead of []"),
        ({"lost": "records"}, "lost 1 records"),
        ({"lost": "ranks"}, "lost 1 ranks"),
        ({"lost": "probes"}, "lost 1 probes"),
        ({"lost": "rows"}, "lost 1 rows"),
    ],
)
def test_a_wrong_run_is_named(tmp_path, changed, word):
    wrong = check(tmp_path, RIGHT, **changed)
    assert any(word in sentence for sentence in wrong), wrong


def test_a_second_cause_is_named(tmp_path):
    summary = copy.deepcopy(RIGHT)
    summary["findings"].append({**RIGHT["findings"][0], "kind": "X", "cause": "SLOW_COLLATE"})
    assert check(tmp_path, summary) == ["X names the cause SLOW_COLLATE too"]


def test_one_thousandth_is_within_the_tolerance(tmp_path):
    assert check(tmp_path, RIGHT, short_ns=1) == []


def test_a_misspelt_key_is_refused(tmp_path):
    path = tmp_path / "case.py"
    path.write_text('# e2e: expect = BALANCED\n# e2e: helthy = yes\n"""x"""\n')
    with pytest.raises(ValueError, match="helthy"):
        read_case(path)


def test_counts_of_ranks_are_read():
    assert read_truth("rank=1 steps=7\nrank=0 steps=7 batches=14\n") == {1: (7, None), 0: (7, 14)}


def test_without_the_schema_nothing_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ImportError):
        make_validator()


def test_the_matrix_is_whole():
    """28 cases at the least, six healthy ones, each of the ten known mistakes, every cause; and each
    reports what it must not report."""
    cases = read_cases()
    assert len(cases) >= 28
    assert sum(case.healthy for case in cases) >= 6
    assert {case.get("mistake") for case in cases} - {None} == {str(n) for n in range(1, 11)}
    causes = {case.get("cause") for case in cases if case.name.startswith("cause_")}
    assert causes == CAUSES
    assert all(case.line_number for case in cases if case.get("line"))
    names = {case.name for case in cases}
    assert all(case.get("beside") in names for case in cases if case.get("beside"))
    assert all(case.about for case in cases)
    assert [case.name for case in cases if not case.healthy and not case.list("forbid")] == []


def test_cases_about_the_cpu_run_alone():
    options = types.SimpleNamespace(cases=CASES)
    beside, alone = matrix.split_groups(matrix.group_cases(read_cases(), options))
    names = [[case.name for case in group] for group in alone]
    assert ["cause_cpu_oversubscribed"] in names
    assert ["concurrent_healthy", "concurrent_starved"] in names
    assert len(alone) < len(beside) / 3
    assert sum(map(len, beside + alone)) == len(read_cases())


def test_make_runs_it_thrice_and_busy():
    command = ["make", "-n", "-C", pathlib.Path(__file__).parents[2], "verdicts-thrice"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rounds = [line.split("matrix.py ")[1] for line in said.splitlines() if "matrix.py" in line]
    assert rounds == ["--repeat 3", "--busy"]


def test_the_matrix_of_the_gpu_is_whole():
    """12 cases at the least, with each verdict of the GPU's clock, and healthy ones; what copies or
    waits is named by its line."""
    cases = read_cases(folder=GPU_CASES)
    assert len(cases) >= 12
    assert sum(case.healthy for case in cases) >= 6
    expected = {kind for case in cases for kind in case.list("expect")}
    assert expected >= {"INPUT_BOUND", "H2D_BOUND", "WAIT_HEAVY", "LAUNCH_BOUND", "MEMORY_CREEP"}
    named = [case.name for case in cases if case.get("line") and case.line_number]
    assert {name.split("_")[0] for name in named} >= {"pageable", "blocking", "small", "item"}
    assert all(case.about for case in cases)
