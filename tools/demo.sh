#!/usr/bin/env bash
# demo.sh: a real training that is slow, what leat says of it, the change it names, the proof.

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

show leat run --logs-dir "$logs" --run-name before examples/slow_train.py
change=$(python3 examples/slow_train.py --show-change)
printf '\nThe verdict names one change; here it is made: %s\n' "$change"
show leat run --quiet --logs-dir "$logs" --run-name after examples/slow_train.py --fixed
show leat compare "$logs/before" "$logs/after"
