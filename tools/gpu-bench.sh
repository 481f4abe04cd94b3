#!/usr/bin/env bash
# gpu-bench.sh: the benches on a machine with many cores: each on two of them, as on the small machine
# whose bars they are, all at once.
#
#     tools/gpu-bench.sh [BUILD [SECONDS]]
#
# BUILD (default: build) holds leat and python as they were brought along; modules that the peers need
# and this machine lacks (lmdb, webdataset) may lie in BUILD/python too. What is not done after SECONDS
# (default: 560) is shown as far as it came.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=$(realpath "${1:-build}") limit=${2:-560}
out=$(mktemp -d)
core=0

bench() { # bench NAME PROGRAM OPTION...
    local name=$1
    shift
    taskset -c $core,$((core + 1)) timeout "$limit" python3 -u "bench/$1" --build "$build" "${@:2}" >"$out/$name" 2>&1 &
    core=$((core + 2))
}

bench 1-memory loader.py --only memory --seconds 5
bench 2-rest loader.py --only gather first resident
bench 3-files loader.py --only tokens npy --seconds 5
bench 4-tar loader_tar.py
bench 5-hdf5 loader_hdf5.py --seconds 4
bench 6-lmdb loader_lmdb.py --seconds 5
bench 7-what-if what_if.py
bench 8-cost loader_cost.py
wait
for file in "$out"/*; do
    echo "== ${file##*/}"
    tail -n 30 "$file"
done
