#!/usr/bin/env bash
# bench.sh: runs the programs of bench/, each of which measures side by side and prints ratios.
#
#     tools/bench.sh overhead     bench/overhead.py, and so on: the name of the program
#     tools/bench.sh loader       bench/loader.py and those of its formats, one after the other
#     tools/bench.sh all          every bench/*.py

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
python=.venv/bin/python

run_each() { # run_each PROGRAM...: all of them, also after one has failed
    local program status=0
    for program in "$@"; do
        echo "$program"
        "$python" "$program" || status=1
    done
    exit "$status"
}

case "${1:-all}" in
all) run_each bench/*.py ;;
loader) run_each bench/loader.py bench/loader_tar.py bench/loader_hdf5.py bench/loader_lmdb.py ;;
*)
    [ -f "bench/$1.py" ] || die "there is no bench/$1.py."
    exec "$python" "bench/$1.py"
    ;;
esac
