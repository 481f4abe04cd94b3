"""Python in the tutorial and the how-to pages runs as it is printed."""

import pathlib
import re

import pytest
from conftest import ROOT

DOCS = pathlib.Path(ROOT) / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})


def test_pages_with_a_loader_have_blocks():
    assert len(BLOCKS) >= 4
