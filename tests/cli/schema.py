"""Validates the summary of every golden database, those of the transcripts (runs/) too, against
docs/final_summary.schema.json.

    python3 tests/cli/schema.py build/tests/cli/summarize_run

Also checks what a schema cannot express: the phases add up to the step, the shares to one, the verdict
is the first finding, and the text report stays below 80 columns. Needs the jsonschema package;
without it the test is skipped (exit status 77).
"""

import json
import pathlib
import sys
import tempfile

import golden_run

try:
    import jsonschema
except ImportError:
    print("skipped: the jsonschema package is not installed")
    sys.exit(77)


def check_sums(summary):
    """Yields what does not add up."""
    step_time = summary["step_time"]
    for name, rank in {"": step_time, **step_time["ranks"]}.items():
        phases = [p for p in rank["phases"].values() if p]
        if not phases:
            continue
        total = sum(p["mean"] for p in phases)
        shares = sum(p["share"] for p in phases)
        if abs(total - rank["mean"]) > 0.001 * rank["mean"]:
            yield f"rank {name}: the phases add up to {total}, the step is {rank['mean']}"
        if abs(shares - 1) > 0.001:
            yield f"rank {name}: the shares add up to {shares}"
    if summary["verdict"]["kind"] != summary["findings"][0]["kind"]:
        yield "the verdict is not the first finding"


def check_text(text):
    lines = text.splitlines()
    wide = [line for line in lines if len(line) >= 80]
    if wide:
        yield f"too wide: {wide[0]}"
    if not lines[0].startswith("Verdict: "):
        yield f"does not open with the verdict: {lines[0]}"
    first_screen = "\n".join(lines[:24])
    for part in ("\nWhy: ", "\nNext: ", "\nStep Time\n", "- Diagnosis: ", "- Stats: "):
        if part not in first_screen:
            yield f"{part.strip()!r} is not on the first screen"
    if not lines[-1].startswith("  leat "):
        yield f"does not end with a command: {lines[-1]}"


def main():
    summarize = pathlib.Path(sys.argv[1]).resolve()
    schema = json.loads((golden_run.SOURCE / "docs/final_summary.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    scripts = sorted(golden_run.GOLDEN.glob("*.sql"))
    runs = sorted(pathlib.Path(__file__).with_name("runs").glob("*.sql"))
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        for script in scripts + runs:
            folder = pathlib.Path(place, script.parent.name, script.stem)
            golden_run.make(script, folder, summarize)
            summary = json.loads((folder / "final_summary.json").read_text())
            complaints = [
                f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(summary)
            ]
            complaints += check_sums(summary)
            complaints += check_text((folder / "final_summary.txt").read_text())
            for complaint in complaints:
                print(f"{script.stem}: {complaint}")
            bad += bool(complaints)
    print(f"{len(scripts)} summaries of rules, {len(runs)} of transcripts, {bad} of them wrong")
    sys.exit(1 if bad or not scripts or not runs else 0)


if __name__ == "__main__":
    main()
