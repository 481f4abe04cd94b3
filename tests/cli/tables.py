"""Compares the documents with src/store/tables.def, the definition of run.db's tables.

    python3 tests/cli/tables.py build/tests/cli/print_tables [--write]

docs/run-db.md has a table of columns for each table, docs/metrics.md the list of published columns;
both are generated, and --write writes them. Every path that a column is published at must be in
docs/final_summary.schema.json.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
Column = collections.namedtuple("Column", "table about name type unit null meaning path")


def columns(print_tables):
    lines = subprocess.run(
        [print_tables, "columns"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    return [Column(*line.split("\t")) for line in lines]


def table_of_columns(columns):
    yield "| column | type | meaning | `final_summary.json` |"
    yield "|---|---|---|---|"
    for c in columns:
        kind = f"{c.type}, {c.unit}" if c.unit else c.type
        notes = [note for note in (c.meaning, f"NULL: {c.null}" if c.null else "") if note]
        path = f"`{c.path}`" if c.path else ""
        yield f"| {c.name} | {kind} | {'; '.join(notes)} | {path} |"


def table_of_paths(columns):
    by_path = collections.defaultdict(list)
    for c in columns:
        if c.path:
            by_path[c.path].append(f"`{c.table}.{c.name}`")
    yield "| `final_summary.json` | run.db |"
    yield "|---|---|"
    for path in sorted(by_path):
        yield f"| `{path}` | {', '.join(by_path[path])} |"


def generated(text, name, lines):
    """`text` with the part between the marks of `name` replaced; None without the marks."""
    marks = re.compile(rf"(<!-- {name}: generated[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(text):
        return None
    return marks.sub(lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text)


def check_page(page, parts, write):
    """Yields what is wrong with a page whose `parts` (name to lines) are generated."""
    path = DOCS / page
    text = path.read_text()
    for name, lines in parts.items():
        new = generated(text, name, lines)
        if new is None:
            yield f"{page} has no generated part {name}"
        else:
            if new != text and not write:
                yield f"{page}: {name} differs from src/store/tables.def: run tables.py --write"
            text = new
    if write:
        path.write_text(text)


def step_into(schema, node, word):
    """The part of a JSON schema that describes `word` (a key, [] or *) of `node`; None: nothing."""
    if "$ref" in node:
        return step_into(schema, schema["$defs"][node["$ref"].rpartition("/")[2]], word)
    for choice in node.get("anyOf", []):
        found = step_into(schema, choice, word)
        if found is not None:
            return found
    if word == "[]":
        return node.get("items")
    if word == "*":
        return next(iter(node.get("patternProperties", {}).values()), None)
    return node.get("properties", {}).get(word)


def is_published(schema, path):
    node = schema
    for word in path.replace("[]", ".[]").split("."):
        node = step_into(schema, node, word)
        if node is None:
            return False
    return True


def check(columns, write):
    by_table = {}
    for c in columns:
        by_table.setdefault(c.table, []).append(c)
    run_db = {f"columns of {t}": table_of_columns(of) for t, of in by_table.items()}
    yield from check_page("run-db.md", run_db, write)
    yield from check_page("metrics.md", {"published columns": table_of_paths(columns)}, write)
    schema = json.loads((DOCS / "final_summary.schema.json").read_text())
    assert is_published(schema, "run.name") and not is_published(schema, "run.nosuch")
    for c in columns:
        if c.path and not is_published(schema, c.path):
            yield f"{c.table}.{c.name}: final_summary.schema.json has no {c.path}"


def main():
    found = columns(sys.argv[1])
    complaints = list(check(found, "--write" in sys.argv))
    for complaint in complaints:
        print(complaint)
    print(f"{len(found)} columns, {len(complaints)} complaints")
    sys.exit(1 if complaints or not found else 0)


if __name__ == "__main__":
    main()
