#!/usr/bin/env bash
# gpu-matrix.sh: the verdict matrix on a machine with many cores: each part of it on two of them, as
# on the small machine it is made for, all parts at once.
#
#     tools/gpu-matrix.sh [ROUNDS [BUSY_ROUNDS]]
#
# build/leat, build/python and build/tests/unit/observe/fake_nvml.so are used as they were brought along.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
rounds=${1:-3} busy_rounds=${2:-1}
parts=$(($(nproc) / 2 - 1)) # two cores are left to everything else
out=$(mktemp -d)
schema=() # a GPU machine may lack the package
python3 -c 'import jsonschema' 2>/dev/null || schema=(--without-schema)

round() { # round NAME OPTION...
    local name=$1 i
    shift
    for ((i = 1; i <= parts; i++)); do
        CUDA_VISIBLE_DEVICES='' taskset -c $((2 * i)),$((2 * i + 1)) python3 tests/e2e/matrix.py --python "$(command -v python3)" \
            "${schema[@]}" --part "$i/$parts" --logs "$out/$name-$i" "$@" >"$out/$name-$i.txt" 2>&1 &
    done
    wait
    grep -h -A 6 '^WRONG' "$out/$name"-*.txt
    echo "$name: $(cat "$out/$name"-*.txt | awk '/ right$/ {right += $1; all += $3} END {print right + 0, "of", all + 0, "right"}')"
}

for ((n = 1; n <= rounds; n++)); do round "round $n"; done
for ((n = 1; n <= busy_rounds; n++)); do round "busy round $n" --busy; done
