#!/usr/bin/env bash
# bench.sh: runs the programs of bench/, each of which measures side by side and prints ratios.
#
#     tools/bench.sh overhead     bench/overhead.py, and so on: the name of the program
#     tools/bench.sh all          every bench/*.py

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
python=.venv/bin/python
case "${1:-all}" in
all)
    status=0
    for program in bench/*.py; do
        echo "$program"
        "$python" "$program" || status=1
    done
    exit "$status"
    ;;
*)
    [ -f "bench/$1.py" ] || die "there is no bench/$1.py."
    exec "$python" "bench/$1.py"
    ;;
esac
