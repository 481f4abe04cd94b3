"""Compares one finished run with what its case expects: each check yields a sentence for each wrong
thing it finds, and nothing when all is right."""

import json
import pathlib
import re
import sqlite3

from e2e_case import TRUTH, read_truth

SCHEMA = pathlib.Path(__file__).parents[2] / "docs" / "final_summary.schema.json"
PHASES = "input h2d forward backward optimizer sync other".split()
SUM_TOLERANCE = 0.001  # verdicts.md: the phases are the step within 0.1 %


def make_validator():
    """Of final_summary.json. Without the package nothing is held against the schema, so nothing runs."""
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def load_summary(folder, validator):
    """Returns (summary or None, complaints)."""
    path = folder / "final_summary.json"
    if not path.exists():
        return None, ["there is no final_summary.json"]
    try:
        summary = json.loads(path.read_text())
    except ValueError as error:
        return None, [f"final_summary.json cannot be read: {error}"]
    wrong = [
        f"schema: {'.'.join(str(part) for part in error.absolute_path)}: {error.message[:120]}"
        for error in validator.iter_errors(summary)
    ]
    if not (folder / "final_summary.txt").exists():
        wrong.append("there is no final_summary.txt")
    return summary, wrong[:5]


def loud(summary):
    return [f for f in summary["findings"] if f["severity"] in ("warning", "critical")]


def check_passthrough(case, status, stdout, stderr):
    signal = case.get("signal")
    right = (-int(signal), 128 + int(signal)) if signal else (int(case.get("exit", 0)),)
    if status not in right:
        yield f"exit status {status} instead of {right[-1]}"
    lines = stdout.splitlines()
    if case.get("steps") != "none" and len(read_truth(stdout)) != case.ranks:
        yield f"stdout lacks the script's own count: {stdout[-80:]!r}"
    for line in lines:
        known = TRUTH.match(line) or line == case.get("interrupt")
        if not known and not re.fullmatch(case.get("stdout", "(?!)"), line):
            yield f"a foreign line on stdout: {line[:80]!r}"
            break
    if case.get("stdout") and not any(re.fullmatch(case.get("stdout"), line) for line in lines):
        yield f"stdout lacks {case.get('stdout')!r}"
    if case.get("stderr") and not re.search(case.get("stderr"), stderr):
        yield f"stderr lacks {case.get('stderr')!r}"


def check_ending(case, summary):
    run = summary["run"]
    ended = case.get("ended", "completed")
    if run["ended"] != ended:
        yield f"ended {run['ended']} instead of {ended}"
    if case.get("signal") and run["signal"] != int(case.get("signal")):
        yield f"signal {run['signal']} instead of {case.get('signal')}"
    if case.get("exit") and run["exit_status"] != int(case.get("exit")):
        yield f"run.exit_status {run['exit_status']} instead of {case.get('exit')}"


def check_verdict(case, summary):
    verdict, findings = summary["verdict"], summary["findings"]
    if verdict["kind"] not in case.list("expect"):
        yield f"verdict {verdict['kind']} instead of {case.get('expect')}"
        return
    same = [f for f in findings if f["kind"] == verdict["kind"]]
    if not same:
        yield f"no finding carries the verdict {verdict['kind']}"
        return
    finding = same[0]
    if case.get("severity") and verdict["severity"] != case.get("severity"):
        yield f"severity {verdict['severity']} instead of {case.get('severity')}"
    if case.get("cause") and finding["cause"] not in case.list("cause"):
        yield f"cause {finding['cause']} instead of {case.get('cause')}"
    if case.get("rank") and finding["scope"]["rank"] != int(case.get("rank")):
        yield f"names rank {finding['scope']['rank']} instead of {case.get('rank')}"
    if case.get("worker") and finding["scope"]["worker"] != int(case.get("worker")):
        yield f"names worker {finding['scope']['worker']} instead of {case.get('worker')}"
    yield from check_line(case, finding)
    text = json.dumps([verdict, finding])
    if case.get("says") and not re.search(case.get("says"), text, re.I):
        yield f"does not say {case.get('says')!r}: {verdict['summary']!r}"


def check_line(case, finding):
    if not case.get("line"):
        return
    number, least = case.line_number, float(case.get("share", 0.5))
    named = [w for w in finding["where"] if w["file"].endswith(case.path.name)]
    at = [w for w in named if w["line"] == number]
    if not at:
        seen = [(w["line"], w["share"]) for w in named]
        yield f"line {number} is not named, but {seen}"
    elif not (at[0]["share"] or 0) >= least:
        yield f"line {number} has a share of {at[0]['share']}, at least {least} is its own"


def check_causes(case, summary):
    """One cause is right, so any other beside it is wrong."""
    for finding in summary["findings"]:
        if case.get("cause") and finding["cause"] not in [None, *case.list("cause")]:
            yield f"{finding['kind']} names the cause {finding['cause']} too"


def check_silence(case, summary):
    for finding in loud(summary):
        if case.healthy or finding["kind"] in case.list("forbid"):
            yield f"{finding['severity']} {finding['kind']} ({finding.get('cause')}) was reported"
    if case.get("gpus") == "foreign":
        kinds = [f["kind"] for f in summary["findings"] if "GPU" in f["kind"]]
        if kinds:
            yield f"has findings about GPUs of other runs: {kinds}"
    for finding in summary["findings"]:
        if not finding["evidence"]:
            yield f"{finding['kind']} has no evidence"


def check_steps(case, summary, db, stdout):
    truth = read_truth(stdout)
    counts = dict(db.execute("SELECT id >> 40, count(*) FROM steps GROUP BY 1").fetchall())
    ranks = (summary["step_time"] or {}).get("ranks") or {}
    if case.get("steps") == "none":
        if counts:
            yield f"{counts} steps in a script that makes none"
        return
    if set(counts) != set(truth):
        yield f"steps of ranks {sorted(counts)} instead of {sorted(truth)}"
    for rank, (steps, batches) in truth.items():
        if counts.get(rank) != steps:
            yield f"rank {rank}: {counts.get(rank)} steps in run.db, the script made {steps}"
        said = ranks.get(str(rank), {}).get("steps")
        if said != steps:
            yield f"rank {rank}: {said} steps in the summary, the script made {steps}"
        seen = db.execute("SELECT sum(micro_steps) FROM steps WHERE id >> 40 = ?", (rank,))
        arrived = seen.fetchone()[0]
        if batches is not None and arrived != batches:
            yield f"rank {rank}: {arrived} batches, the script took {batches}"
    mains = db.execute("SELECT count(*) FROM processes WHERE role = 'main'").fetchone()[0]
    if mains != case.ranks:
        yield f"{mains} training processes instead of {case.ranks}"


def check_sums(case, summary, db):
    columns = ", ".join(f"coalesce({phase}_ns, 0)" for phase in PHASES)
    last_end = {}
    query = (
        f"SELECT id >> 40, id & 1099511627775, end_ns, wall_ns, {columns} FROM steps ORDER BY id"
    )
    for rank, step, end, wall, *phases in db.execute(query):
        if abs(sum(phases) - wall) > SUM_TOLERANCE * wall:
            yield f"rank {rank} step {step}: phases sum to {sum(phases)} of {wall} ns"
            return
        if min(phases) < 0 or end - wall < last_end.get(rank, 0) - SUM_TOLERANCE * wall:
            yield f"rank {rank} step {step}: overlaps the step before it"
            return
        last_end[rank] = end
    ranks = (summary["step_time"] or {}).get("ranks") or {}
    for rank, stats in ranks.items():
        shares = [p["share"] for p in stats["phases"].values() if p and p["share"] is not None]
        if shares and abs(sum(shares) - 1) > SUM_TOLERANCE:
            yield f"rank {rank}: shares of the phases sum to {sum(shares):.4f}"


def check_evaluation(case, db):
    if not case.get("evaluates"):
        return
    query = "SELECT total(total_ns) / 1e9 FROM span_totals WHERE name = 'eval'"
    seconds = db.execute(query).fetchone()[0]
    if seconds < float(case.get("evaluates")):
        yield f"{seconds:.2f} s of evaluation, at least {case.get('evaluates')} were made"
    uses = sorted(use for (use,) in db.execute("SELECT use FROM loaders"))
    if uses != ["eval", "train"]:
        yield f"the loaders are used for {uses} instead of eval and train"


def check_compiling(case, summary):
    """The steps in which torch.compile worked are counted separately, with their time."""
    wanted = int(case.get("compiles", -1))
    if wanted < 0:
        return
    step_time = summary["step_time"] or {}
    if step_time.get("compile_steps") != wanted:
        yield f"{step_time.get('compile_steps')} compile steps instead of {wanted}"
    elif not step_time["compile_ms"] > wanted * step_time["median"]:
        yield f"{wanted} compile steps took {step_time['compile_ms']} ms, no more than others"


def check_gpus(case, db):
    """Only the GPU of this run is sampled: of the counterfeit ones the second."""
    seen = [gpu for (gpu,) in db.execute("SELECT DISTINCT gpu FROM gpu_samples ORDER BY 1")]
    wanted = {"foreign": [], "own": ["GPU-fake-1"]}.get(case.get("gpus"), seen)
    if seen != wanted:
        yield f"samples of the GPUs {seen} instead of {wanted}"


def check_lost(db):
    """What a run leaves out to bound its size (samples) is no loss of a case, and notes are none."""
    for what, n, why in db.execute("SELECT what, n, why FROM lost"):
        if n and what in ("records", "ranks", "probes", "rows"):
            yield f"lost {n} {what}: {why}"


def check_run(case, folder, validator, status, stdout, stderr):
    """Returns (summary or None, complaints) of one run."""
    wrong = list(check_passthrough(case, status, stdout, stderr))
    summary, bad = load_summary(folder, validator)
    wrong += bad
    if summary is None or any(text.startswith("schema") for text in bad):
        return summary, wrong
    wrong += check_ending(case, summary)
    wrong += check_verdict(case, summary)
    wrong += check_causes(case, summary)
    wrong += check_silence(case, summary)
    wrong += check_compiling(case, summary)
    db = sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True)
    try:
        wrong += check_steps(case, summary, db, stdout)
        wrong += check_sums(case, summary, db)
        wrong += check_evaluation(case, db)
        wrong += check_gpus(case, db)
        wrong += check_lost(db)
    except sqlite3.Error as error:
        wrong.append(f"run.db: {error}")
    finally:
        db.close()
    return summary, wrong
