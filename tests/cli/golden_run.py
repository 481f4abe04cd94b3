"""Run folders for tests: a database from a script of SQL, and its summary.

A script is executed on an empty database with leat's schema, between base.inc and expand.inc of
tests/data/golden, which say what a script may use.
"""

import functools
import pathlib
import sqlite3
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests/data/golden"


@functools.cache
def schema(print_tables):
    """CREATE TABLE of every table."""
    return subprocess.run(
        [print_tables, "sql"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def make(script, folder, summarize, name=None):
    """Makes `folder` with run.db, final_summary.json and final_summary.txt."""
    folder.mkdir(parents=True)
    database = sqlite3.connect(folder / "run.db")
    database.execute("PRAGMA synchronous = OFF")  # it need not survive a power cut
    database.executescript(schema(pathlib.Path(summarize).with_name("print_tables")))
    # One transaction: the scripts insert thousands of rows.
    parts = [GOLDEN / "base.inc", script, GOLDEN / "expand.inc"]
    database.executescript("BEGIN;" + "\n".join(p.read_text() for p in parts) + ";COMMIT;")
    if name:
        database.execute("UPDATE meta SET value = ? WHERE key = 'run_name'", (name,))
        database.commit()
    database.close()
    subprocess.run([summarize, folder], check=True)
