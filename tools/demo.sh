#!/usr/bin/env bash
# demo.sh: a real training that is slow, leat's verdict, the change it names, the proof.
#
# The second run is given the number of workers that the first verdict names: it is read from the
# summary, so a verdict that names nothing ends the demo.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
export PATH="$PWD/.venv/bin:$PWD/build:$PATH"

# The logs are the demo's own, so that it runs twice and leaves the user's runs alone.
logs=build/demo
rm -rf "$logs"
mkdir -p "$logs"

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

named_workers() {
    python3 - "$1" <<'PYTHON'
import json, re, sys
verdict = json.load(open(sys.argv[1]))["verdict"]
found = re.search(r"num_workers=(\d+)", verdict["action"] or "")
print(found.group(1) if found else "")
PYTHON
}

show leat run --logs-dir "$logs" --run-name before examples/slow_train.py
workers=$(named_workers "$logs/before/final_summary.json")
[ -n "$workers" ] || die "the verdict names no num_workers; see $logs/before/final_summary.txt"
printf '\nThe verdict names one change, num_workers=%s. The same training with it:\n' "$workers"
show leat run --quiet --logs-dir "$logs" --run-name after examples/slow_train.py --workers "$workers"
show leat compare "$logs/before" "$logs/after"
