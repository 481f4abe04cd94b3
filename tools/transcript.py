#!/usr/bin/env python3
"""Writes a real run of `make demo` into README.md, between the two marks.

    make demo >demo.txt 2>&1 && tools/transcript.py demo.txt

A line of three dots stands for omitted lines; nothing else is changed.
"""

import pathlib
import re
import sys

README = pathlib.Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- transcript: see tools/transcript.py -->\n", "<!-- end of transcript -->\n"


def between(text, first, last):
    """From the line that begins with `first` to the one that begins with `last`, inclusive."""
    found = re.search(rf"^{re.escape(first)}.*?^{re.escape(last)}[^\n]*\n", text, re.M | re.S)
    if not found:
        sys.exit(f'transcript: the demo has no text from "{first}" to "{last}"')
    return found.group()


def main():
    demo = pathlib.Path(sys.argv[1]).read_text()
    parts = [
        between(demo, "$ leat run", "epoch 1"),
        between(demo, "epoch 7", "- Where"),
        between(demo, "The verdict names", "$ leat run --quiet"),
        between(demo, "$ leat compare", "  input"),
    ]
    shown = "...\n".join(parts) + "...\n"
    block = "".join(f"    {line}".rstrip() + "\n" for line in shown.splitlines())
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit("transcript: README.md lacks the two marks")
    README.write_text(f"{before}{BEGIN}\n{block}\n{END}{after}")


if __name__ == "__main__":
    main()
