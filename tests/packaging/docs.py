#!/usr/bin/env python3
"""The documents agree with the program: every command of `leat help` has a man page and completion
in every shell, every option of its --help is in all of them, links lead somewhere, make targets, C
tests and files that are named exist, every table with a limit is in the table of limits, the published
schema is a schema.

    tests/packaging/docs.py [BUILD_FOLDER]
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
COMPLETIONS = ["completions/leat.bash", "completions/_leat", "completions/leat.fish"]
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "OVERHEAD", "EXIT STATUS", "EXAMPLES"]

wrong = []


def expect(condition, sentence):
    if not condition:
        wrong.append(sentence)


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def leat(*words):
    return subprocess.run([BUILD / "leat", *words], capture_output=True, text=True, check=False)


def commands():
    """The commands as `leat help` lists them."""
    listing = leat("help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^  ([a-z]+) ", listing, re.M)
    expect(len(found) >= 5, f"`leat help` lists only these commands: {found}")
    return found


def options_of(command):
    """The long options of a command, as its help gives them."""
    for words in ((command, "--help"), ("help", command)):
        answer = leat(*words)
        expect(answer.returncode == 0, f"leat {' '.join(words)} ends with {answer.returncode}")
        expect(answer.stdout, f"leat {' '.join(words)} says nothing")
    usage = answer.stdout
    expect("xample" in usage or command == "help", f"leat {command} --help has no example")
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", usage)))


def check_command(command):
    page = ROOT / f"docs/man/leat-{command}.1"
    expect(page.exists(), f"{command}: there is no {page.name}")
    expect(f"man/leat-{command}.1" in text_of("docs/meson.build"), f"{page.name} is not installed")
    if not page.exists():
        return
    # Plain words: man's macros and escapes taken away.
    manual = re.sub(r"\\f.|\\", "", page.read_text(encoding="utf-8"))
    for section in SECTIONS:
        expect(f".SH {section}\n" in manual, f"{page.name}: no section {section}")
    expect(f"leat-{command}" in text_of("docs/man/leat.1"), f"leat.1 does not name leat-{command}")
    for path in COMPLETIONS:
        expect(re.search(rf"\b{command}\b", text_of(path)), f"{path}: no command {command}")
    for option in options_of(command):
        # What follows the name of the training in an example belongs to the training.
        if option in ("--epochs", "--nproc-per-node", "--help"):
            continue
        expect(option in manual, f"{page.name}: no option {option}")
        for path in COMPLETIONS:
            word = option[2:] if path.endswith(".fish") else option
            expect(word in text_of(path), f"{path}: no option {option} ({command})")
    # And the other way round: the page promises nothing that is not there.
    promised = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", manual.partition(".SH OPTIONS")[2]))
    known = set(options_of(command)) | {"--help", "--epochs", "--nproc-per-node"}
    expect(promised <= known, f"{page.name}: unknown to the program: {sorted(promised - known)}")


def check_formatting():
    """The formatter's own warnings; mandoc and groff are asked where they are installed."""
    for page in sorted((ROOT / "docs/man").glob("*.1")):
        for tool in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-ww", "-z"]):
            if shutil.which(tool[0]):
                answer = subprocess.run([*tool, page], capture_output=True, text=True, check=False)
                said = answer.stdout + answer.stderr
                expect(not said.strip(), f"{page.name}: {tool[0]} says: {said.strip()}")


def complete_in_bash(*words):
    """What bash would offer for these words."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _leat; printf "%s\\n" "${COMPREPLY[@]}"'
    answer = subprocess.run(
        ["bash", "-c", script, "bash", ROOT / COMPLETIONS[0], *words],
        capture_output=True,
        text=True,
        check=False,
    )
    expect(not answer.stderr, f"completion of {words} in bash: {answer.stderr}")
    return answer.stdout.split()


def check_completions(names):
    expect(set(names) <= set(complete_in_bash("leat", "")), "bash does not offer every command")
    expect(complete_in_bash("leat", "com") == ["compare"], "bash does not complete `leat com`")
    expect("--run-name" in complete_in_bash("leat", "run", "--r"), "bash: no --run-name for run")
    expect(
        complete_in_bash("leat", "run", "t.py", "--r") == [], "bash offers leat's options to t.py"
    )
    for shell, path in (("zsh", COMPLETIONS[1]), ("fish", COMPLETIONS[2])):
        if shutil.which(shell):
            answer = subprocess.run([shell, "-n", ROOT / path], capture_output=True, check=False)
            expect(answer.returncode == 0, f"{shell} cannot read {path}")


def check_links():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if not re.match(r"[a-z]+:", target):
                expect(
                    (page.parent / target).exists(), f"{page.name}: the link {target} leads nowhere"
                )


def check_named():
    """What a page tells the reader to call exists: make targets, C tests, files of the tree."""
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    tests = {path.stem for path in (ROOT / "tests/unit").rglob("test_*.c")}
    for page in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs/man").glob("*.1"),
    ]:
        text = re.sub(r"\\", "", page.read_text(encoding="utf-8"))
        for target in re.findall(r"(?:`|^    |\.B\w* \"?)make ([a-z][a-z-]*)", text, re.M):
            expect(target in targets, f"{page.name}: there is no `make {target}`")
        for name in re.findall(r"meson test -C \S+ (test_\w+)", text):
            expect(name in tests, f"{page.name}: there is no C test {name}")
        folders = "bench|docs|examples|include|python|src|tests|tools"
        for path in re.findall(rf"(?<![\w/.-])(?:{folders})/[\w./-]*\.\w+", text):
            there = "NAME" in path or (ROOT / path).exists()
            expect(there, f"{page.name}: there is no {path}")


def check_limits():
    """docs/run-db.md knows every table that the writer thins, and every table of the schema."""
    page = text_of("docs/run-db.md")
    sizes = page.partition("## Size")[2].partition("\n## ")[0]
    for table in re.findall(r"^    LIMIT\((\w+),", text_of("src/store/writer_thin.c"), re.M):
        expect(f"`{table}`" in sizes, f"run-db.md: the table of sizes lacks {table}")
    headings = " ".join(re.findall(r"^### (.*):", page, re.M))
    for table in re.findall(r"^TABLE\((\w+)", text_of("src/store/tables.def"), re.M):
        expect(re.search(rf"\b{table}\b", headings), f"run-db.md says nothing of {table}")


def check_timing():
    """What docs/run-db.md states about batches and samples that are not all timed is what the hook does."""
    code = text_of("python/record/hook_fetcher.c")
    number = {name: int(n) for name, n in re.findall(r"^    (\w+) = (\d+)\b", code, re.M)}
    batch_ms, sample_ms = number["SLOW_BATCH_NS"] // 10**6, number["SLOW_SAMPLE_NS"] // 10**6
    said = " ".join(text_of("docs/run-db.md").split())
    for sentence in (
        f"Batches that a process makes itself in less than {batch_ms} ms are timed the first "
        f"{number['FIRST_BATCHES']} times, then one in {batch_ms} ms / batch, or in {number['MAX_BATCH_INTERVAL']}.",
        f"Samples of less than {sample_ms} ms are timed the first {number['FIRST_SAMPLES']} times in a "
        f"process, then those of one batch in {sample_ms} ms / sample, or in "
        f"{number['MAX_SAMPLE_INTERVAL']}.",
    ):
        expect(sentence in said, f"run-db.md does not say, as hook_fetcher.c does: {sentence}")


def check_version():
    version = re.search(r"version: '([^']+)'", text_of("meson.build")).group(1)
    expect(leat("--version").stdout.strip() == f"leat {version}", "leat --version is not meson's")
    expect(version in text_of("CHANGELOG.md"), f"CHANGELOG.md does not know {version}")


def check_schema():
    import jsonschema

    schema = json.loads(text_of("docs/final_summary.schema.json"))
    validator = jsonschema.validators.validator_for(schema)
    try:
        validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        expect(False, f"docs/final_summary.schema.json is no JSON Schema: {error.message}")
    expect(list(validator(schema).iter_errors({})), "the schema accepts an empty summary")


def main():
    names = commands()
    for name in names:
        check_command(name)
    check_formatting()
    check_completions(names)
    check_links()
    check_named()
    check_limits()
    check_timing()
    check_version()
    check_schema()
    for sentence in wrong:
        print(sentence)
    print(f"documents: {len(wrong)} wrong, {len(names)} commands looked at")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
