#!/usr/bin/env bash
# gpu-bench.sh: the benches on a machine with many cores: each on two of them, as on the small machine
# whose bars they are, as many at once as there are pairs of cores.
#
#     tools/gpu-bench.sh [BUILD [SECONDS [WORD ...]]]
#
# BUILD (default: build) holds leat and python as they were brought along; modules that the peers need
# and this machine lacks (lmdb, webdataset) may lie in BUILD/python too. A bench that is not done SECONDS
# (default: 560) after its start is shown as far as it came. WORDs choose the benches whose line below
# holds one of them, and then what leat costs a loader is measured for nearly as long.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
BUILD=$(realpath "${1:-build}") LIMIT=${2:-560}
LOGS=${OUT:-$(mktemp -d)} # OUT: what a machine that is lent gives back
export BUILD LIMIT LOGS CUDA_VISIBLE_DEVICES=
words=$(IFS='|' && echo "${*:3}")

# The longest first: the others fill what is left.
benches="loader.py --only memory --seconds 5
loader_tar.py
loader_hdf5.py --seconds 4
tuner.py --only computes
tuner.py --only waits
tuner.py --only in_memory
loader_lmdb.py --seconds 5
loader.py --only gather first resident
loader.py --only tokens npy --seconds 5
$(python3 - "${3:+$((LIMIT - 60))}" <<'PYTHON'
import sys
sys.path.insert(0, "bench")
import loader_cost, what_if
for name in loader_cost.WORKLOADS:
    print(f'loader_cost.py --seconds {sys.argv[1] or 110} --only "{name}"')
for name in what_if.WORKS:
    print(f'what_if.py --only "{name}"')
PYTHON
)"

bench() { # bench LINE, on the pair of cores number SLOT
    local log
    log=$LOGS/$(tr -c 'a-zA-Z0-9\n' - <<<"$1")
    eval "taskset -c $((2 * SLOT)),$((2 * SLOT + 1)) timeout $LIMIT python3 -u bench/${1%% *} --build $BUILD ${1#"${1%% *}"}" >"$log" 2>&1
    echo "== $1"
    tail -n 12 "$log"
}
export -f bench
# shellcheck disable=SC2016
grep -E -- "${words:-.}" <<<"$benches" | tr '\n' '\0' |
    xargs -0 -P $(($(nproc) / 2)) --process-slot-var=SLOT -I{} \
        bash -c 'bench "$1" >"$(mktemp "$LOGS/shown.XXXXXX")"' - {}
cat "$LOGS"/shown.*
