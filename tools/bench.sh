#!/usr/bin/env bash
# bench.sh: runs the programs of bench/, each of which measures side by side, prints ratios, and ends
# with a line "n of m bars held." For several programs the last line counts all bars together.
#
#     tools/bench.sh overhead     bench/overhead.py, and so on: the name of the program
#     tools/bench.sh loader       bench/loader.py and those of its formats, one after the other
#     tools/bench.sh long         bench/report_time.py with the runs of millions of steps
#     tools/bench.sh all          every bench/*.py; those for a GPU where there is one

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
python=.venv/bin/python

run_each() { # run_each "PROGRAM [OPTION]"...: all of them, also after one has failed
    local line words status=0 said
    said=$(mktemp)
    # shellcheck disable=SC2064 # the name as it is now
    trap "rm -f '$said'" EXIT
    for line in "$@"; do
        read -ra words <<<"$line"
        echo "$line"
        echo "program $line" >>"$said"
        "$python" -u "${words[@]}" | tee -a "$said" || status=1
    done
    # A program that ended before its bars is a failure too, and named.
    awk '
        function close_program() { if (program && !seen) broken = broken " " program }
        /^program / { close_program(); program = $2; seen = 0; next }
        /^[0-9]+ of [0-9]+ bars held/ { held += $1; all += $3; seen = 1 }
        END {
            close_program()
            if (broken) print "\nwithout an end:" broken
            printf "\nIn all %d of %d bars held.\n", held, all
            exit broken != ""
        }' "$said" || status=1
    exit "$status"
}

all() {
    local program lines=()
    for program in bench/*.py; do
        case $program in
        bench/report_time.py) lines+=("$program --long") ;;
        bench/gpu_*.py)
            if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
                lines+=("$program")
            else
                echo "$program: left out, there is no GPU"
            fi
            ;;
        *) lines+=("$program") ;;
        esac
    done
    run_each "${lines[@]}"
}

case "${1:-all}" in
all) all ;;
loader) run_each bench/loader.py bench/loader_tar.py bench/loader_hdf5.py bench/loader_lmdb.py ;;
long) exec "$python" bench/report_time.py --long ;;
*)
    [ -f "bench/$1.py" ] || die "there is no bench/$1.py."
    exec "$python" "bench/$1.py"
    ;;
esac
