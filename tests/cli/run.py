"""Golden transcripts: what the command prints, where, and with which exit status.

    python3 tests/cli/run.py build/leat            compares
    python3 tests/cli/run.py build/leat --update   writes the transcripts anew; read the diff

A case is cases/NAME.cmd, shell commands one a line, and cases/NAME.out, what came of them. Each case
runs in a folder of its own that holds the runs of runs/*.sql as logs/NAME (the later in the
alphabet, the newer) and some files that are no summaries (see `prepare`).
"""

import difflib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import golden_run

HERE = pathlib.Path(__file__).resolve().parent


def prepare(place, summarize):
    """The folder that every case gets a copy of."""
    logs = place / "logs"
    for i, script in enumerate(sorted((HERE / "runs").glob("*.sql"))):
        folder = logs / script.stem
        golden_run.make(script, folder, summarize, name=script.stem)
        for file in folder.iterdir():
            os.utime(file, (1_700_000_000 + i, 1_700_000_000 + i))
    bad = place / "bad"
    bad.mkdir()
    whole = (logs / "slow/final_summary.json").read_text()
    (bad / "cut.json").write_text(whole[: len(whole) // 2])
    (bad / "empty.json").write_text("")
    (bad / "prose.json").write_text("loss went down\n")
    (bad / "package.json").write_text('{"name": "x", "dependencies": {}}\n')
    (bad / "list.json").write_text("[1, 2]\n")
    (bad / "later.json").write_text(
        whole.replace('"schema_version": "1.0"', '"schema_version": "7.3"')
    )
    (bad / "folder").mkdir()
    unfinished = bad / "unfinished"
    unfinished.mkdir()
    shutil.copy(logs / "slow/run.db", unfinished)
    no_steps = bad / "no-steps"
    no_steps.mkdir()
    shutil.copy(logs / "slow/final_summary.json", no_steps)
    broken_db = bad / "broken-db"
    broken_db.mkdir()
    shutil.copy(logs / "fast/final_summary.json", broken_db)
    (broken_db / "run.db").write_text("this is no database\n")


def transcript(command, place, leat):
    """One command, as a terminal would show it, with what went where."""
    environment = {
        "PATH": f"{leat.parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "HOME": str(place),
    }
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    parts = [f"$ {command}\n"]
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        if text:
            end = "" if text.endswith("\n") else "\n(no newline)\n"
            parts.append(f"[{name}]\n{text}{end}")
    parts.append(f"[exit {done.returncode}]\n\n")
    return "".join(parts)


def main():
    leat = pathlib.Path(sys.argv[1]).resolve()
    update = "--update" in sys.argv[2:]
    summarize = leat.parent / "tests/cli/summarize_run"
    cases = sorted((HERE / "cases").glob("*.cmd"))
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        template = pathlib.Path(temporary, "template")
        template.mkdir()
        prepare(template, summarize)
        for case in cases:
            place = pathlib.Path(temporary, case.stem)
            shutil.copytree(template, place, symlinks=True)
            commands = [c for c in case.read_text().splitlines() if c and not c.startswith("#")]
            got = "".join(transcript(c, place, leat) for c in commands)
            golden = case.with_suffix(".out")
            want = golden.read_text() if golden.exists() else ""
            if update:
                golden.write_text(got)
            elif got != want:
                wrong.append(case.stem)
                diff = difflib.unified_diff(
                    want.splitlines(True), got.splitlines(True), f"{golden.name}", "now"
                )
                sys.stdout.writelines(diff)
    print(f"{len(cases)} transcripts, {len(wrong)} differ {' '.join(wrong)}")
    sys.exit(1 if wrong or not cases else 0)


if __name__ == "__main__":
    main()
