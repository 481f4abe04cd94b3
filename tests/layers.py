#!/usr/bin/env python3
"""The layer rule of ARCHITECTURE.md, enforced over the includes, and a few habits of the tree.

    base -> record -> {load | probe | observe | store} -> collect -> facts -> predict -> diagnose
         -> report -> {tune | serve} -> launch -> cli

A room includes itself and rooms to its left; rooms in one brace never include each other. A foreign
header has one home. What is made for the kernel, in src/observe/bpf/, opens with its two licences.
Before it judges the tree, the test judges a small tree made of mistakes, and fails when it overlooks
one of them.

    tests/layers.py [ROOT]
"""

import collections
import pathlib
import re
import sys
import tempfile

LAYERS = [
    ["base"],
    ["record"],
    ["load", "probe", "observe", "store"],
    ["collect"],
    ["facts"],
    ["predict"],
    ["diagnose"],
    ["report"],
    ["tune", "serve"],
    ["launch"],
    ["cli"],
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

# The extension links the core alone: what runs inside the user's process.
CORE = {"base", "record", "load"}

# Foreign header (pattern) -> the files or folders that may include it. Vendor libraries that are
# opened at run time have no home: their few declarations are written out where they are used.
HOMES = [
    (r"sqlite3(ext)?\.h", ["src/store/", "tests/"]),
    (r"jansson\.h", ["src/base/json.h", "src/base/json.c"]),
    (r"Python\.h", ["python/"]),
    (r"(bpf/.*|linux/bpf\.h|linux/btf\.h)", ["src/observe/bpf/"]),
    (r"cmocka\.h", ["tests/"]),
    (r"zlib\.h", ["src/load/source/tar/unpack_gz.c"]),
    (r"zstd\.h", ["src/load/source/tar/unpack_zstd.c"]),
    (r"curl/.*", ["src/load/source/remote/download.c"]),
    (r"lmdb\.h", ["src/load/source/lmdb/"]),
    (r"libdeflate\.h", ["src/load/source/hdf5/chunk_filter.c"]),
    (r"(nvml|cuda|cuda_runtime|cuda_runtime_api|cupti|nvjpeg|dlpack/dlpack)\.h", []),
]

MOST_LINES = 900
# The kernel lets only programs under a licence like its own use all of its functions (LICENSE).
BPF_FOLDER = "src/observe/bpf/"
BPF_LICENCE = "SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause"
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    """The room of a path below the root such as src/store/writer.c; None outside src/."""
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def check_include(root, path, quote, target):
    """Yields what is wrong with one include of one file."""
    if quote == '"' and (root / path).parent.joinpath(target).exists():
        return  # a header of the same folder, even if named like a foreign one
    for pattern, homes in HOMES:
        if re.fullmatch(pattern, target):
            if not any(
                path == home or (home[-1] == "/" and path.startswith(home)) for home in homes
            ):
                allowed = " or ".join(homes) or "nowhere (it is opened at run time)"
                yield f"includes <{target}>, whose home is {allowed}"
            return
    if quote == "<" or path.startswith("tests/") or path.startswith("bench/"):
        return
    head = target.split("/")[0]
    if head == "leat":
        return  # the installed headers are below everything
    room = room_of(path)
    if path.startswith("include/"):
        yield f'an installed header includes "{target}", which is not installed'
    elif "/" not in target:
        # A file that the build makes for this room is nowhere in the tree.
        if room and list(root.glob(f"src/*/{target}")):
            yield f'includes "{target}" of another room without naming the room'
    elif head not in LEVEL:
        yield f'includes "{target}": there is no room "{head}"'
    elif room is None:
        if head not in CORE:
            yield f'includes "{target}", but only {", ".join(sorted(CORE))} are linked here'
    elif room in LEVEL and head != room and LEVEL[head] >= LEVEL[room]:
        yield f'includes "{target}": {head} is not to the left of {room}'


def opens_with_comment(text):
    return text.startswith("/*") or text.startswith("//")


def source_files(root):
    for folder in ("include", "src", "python", "tests", "bench", "examples", "tools"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in (".c", ".h", ".py", ".sh", ".sql", ".build"):
                if "__pycache__" not in path.parts:
                    yield path.relative_to(root).as_posix(), path


def check_tree(root):
    """All that is wrong with a tree, a sentence each."""
    wrong = []
    names = collections.defaultdict(list)
    for path, file in source_files(root):
        text = file.read_text(encoding="utf-8", errors="replace")
        is_c = path.endswith((".c", ".h"))
        room = room_of(path)
        if path.startswith("src/") and is_c:
            names[file.name].append(path)
            if room not in LEVEL:
                wrong.append(f"{path}: {room or 'src'} is no room of the layer rule")
        if is_c:
            if not opens_with_comment(text):
                wrong.append(f"{path}: does not open with a comment that gives its idea")
            if path.startswith(BPF_FOLDER) and BPF_LICENCE not in text.split("\n", 1)[0]:
                wrong.append(f"{path}: does not open with {BPF_LICENCE}")
            for quote, target in INCLUDE.findall(text):
                wrong += [f"{path}: {what}" for what in check_include(root, path, quote, target)]
        lines = text.count("\n")
        if lines > MOST_LINES:
            wrong.append(f"{path}: {lines} lines, more than {MOST_LINES}")
        for number, line in enumerate(text.splitlines(), 1):
            if UNFINISHED.search(line):
                wrong.append(f"{path}:{number}: unfinished business: {line.strip()}")
    for name, paths in names.items():
        if len(paths) > 1:
            wrong.append(f"{name}: one name, several files: {', '.join(paths)}")
    return wrong


# Each mistake: files of a small tree, and a piece of the sentence that must come of it.
MISTAKES = [
    ({"src/base/a.c": '/* a */\n#include "record/b.h"\n'}, "record is not to the left of base"),
    ({"src/store/a.c": '/* a */\n#include "observe/b.h"\n'}, "observe is not to the left of store"),
    ({"src/diagnose/a.c": '/* a */\n#include "report/b.h"\n'}, "report is not to the left"),
    ({"src/report/a.c": "/* a */\n#include <sqlite3.h>\n"}, "whose home is src/store/"),
    ({"src/store/a.c": "/* a */\n#include <jansson.h>\n"}, "whose home is src/base/json.h"),
    ({"src/observe/a.c": "/* a */\n#include <nvml.h>\n"}, "nowhere"),
    ({"src/base/a.c": "/* a */\n#include <Python.h>\n"}, "whose home is python/"),
    ({"src/cli/a.c": "/* a */\n#include <cmocka.h>\n"}, "whose home is tests/"),
    ({"python/leat/_record.c": '/* a */\n#include "store/b.h"\n'}, "are linked here"),
    ({"src/base/a.c": '/* a */\n#include "nowhere/b.h"\n'}, 'no room "nowhere"'),
    ({"src/attic/a.c": "/* a */\n"}, "is no room"),
    ({"include/leat/a.h": '/* a */\n#include "base/b.h"\n'}, "not installed"),
    ({"src/base/b.h": "/* b */\n", "src/cli/a.c": '/* a */\n#include "b.h"\n'}, "without naming"),
    ({"src/base/a.c": "int a;\n"}, "does not open with a comment"),
    ({"src/observe/bpf/a.c": "/* a */\n"}, "does not open with SPDX"),
    (
        {"src/observe/bpf/a.h": "/* SPDX-License-Identifier: GPL-2.0 */\n"},
        "does not open with SPDX",
    ),
    ({"src/base/a.c": "/* a */\n", "src/cli/a.c": "/* a */\n"}, "one name, several files"),
    ({"src/base/a.c": "/* a */\n" + "\n" * MOST_LINES}, "more than"),
    ({"tests/a.py": "# TO" + "DO: later\n"}, "unfinished business"),
]
FINE = {
    "include/leat/a.h": "/* a */\n#include <stdint.h>\n",
    "src/base/b.h": '/* b */\n#include "leat/a.h"\n',
    "src/store/c.c": '/* c */\n#include <sqlite3.h>\n#include "base/b.h"\n#include "made_here.h"\n',
    "src/observe/bpf/f.c": f"/* {BPF_LICENCE} */\n#include <linux/bpf.h>\n",
    "src/cli/d.c": '/* d */\n#include "store/c.h"\n#include "serve/e.h"\n',
    "tests/unit/base/test_b.c": '/* b */\n#include <cmocka.h>\n#include "cli/d.h"\n',
}


def judge(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return check_tree(root)


def main():
    overlooked = [say for files, say in MISTAKES if not any(say in w for w in judge(files))]
    overlooked += judge(FINE)
    if overlooked:
        print("layers: the test itself is wrong about:", *overlooked, sep="\n  ")
        return 1
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    wrong = check_tree(root)
    for sentence in wrong:
        print(sentence)
    count = sum(1 for _ in source_files(root))
    print(f"layers: {len(wrong)} wrong in {count} files; {len(MISTAKES)} planted mistakes found")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
