#!/usr/bin/env bash
# gpu-check.sh: does leat work on this GPU machine? Ends with a short table; fails when a row fails.
#
# The machine needs the driver and a Python with CUDA PyTorch, nothing else. leat comes as the wheel
# that `make wheel` built (dist/), in an environment of its own that shares the machine's packages, or
# from build/ where `make build` ran on this machine. `build/bench/probe` times a call of CUDA.
#
#     tools/gpu-check.sh                 all parts, about eight minutes
#     tools/gpu-check.sh training calls  only these parts

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

out=${OUT:-build/gpu-check}
mkdir -p "$out" build/logs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows=()
failed=0
[ $# -gt 0 ] || set -- training bench calls cost clock lines verdicts delivery bars
parts=" ${*/#training/training training2} "
wanted() { [[ $parts == *" $1 "* ]]; }

row() { # row WHAT RESULT STATUS
    rows+=("$(printf '  %-22s %-6s %s' "$1" "$([ "$3" -eq 0 ] && echo ok || echo FAILED)" "$2")")
    printf '%s\n' "${rows[@]}" >"$out/table.txt"
    [ "$3" -eq 0 ] || failed=1
}

# build/gpu has the layout of build/: the command, and the folder that holds the package.
use_wheel() {
    local venv=build/gpu/venv
    python3 -m venv --system-site-packages "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps "$1"
    ln -sfn "$PWD/$venv/bin/leat" build/gpu/leat
    ln -sfn "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" build/gpu/python
    # It finds the probe library by its own place: ../python/leat.
    [ ! -x build/bench/probe ] || install -D build/bench/probe build/gpu/bench/probe
}

wheels=(dist/leat-*.whl)
if [ -f "${wheels[0]}" ]; then
    rm -rf build/gpu
    mkdir -p build/gpu
    status=0
    use_wheel "${wheels[0]}" || status=$?
    leat=$PWD/build/gpu/leat
    row 'wheel' "$(basename "${wheels[0]}"), $(du -k "${wheels[0]}" | cut -f 1) KiB" "$status"
else
    leat=$PWD/build/leat
    row 'build' 'build/leat' "$([ -x "$leat" ] && echo 0 || echo 1)"
fi

status=0
"$leat" check || status=$?
row 'leat check' "$("$leat" --version 2>&1)" "$status"

# Each part prints into a log. Its row shows the lines that failed, or the last line. Parts that measure
# no time run side by side, all others one after the other.
declare -A pids
begin() { # begin PART COMMAND ...
    local part=$1
    shift
    wanted "$part" || return 0
    (
        status=0
        start=$SECONDS
        PYTHONPATH=$(dirname "$leat")/python "$@" >"$work/$part.txt" 2>&1 || status=$?
        echo "$status" >"$work/$part.status"
        echo $((SECONDS - start)) >"$work/$part.seconds"
        cp "$work/$part.txt" "$out/"
    ) &
    pids[$part]=$!
}

finish() { # finish PART WHAT
    wanted "$1" || return 0
    wait "${pids[$1]}"
    echo
    cat "$work/$1.txt"
    local said
    said=$(grep -E 'MISSED|FAILED|^WRONG' "$work/$1.txt" | head -n 2 | tr -s ' \n' ' ') || true
    row "$2" "${said:-$(tail -n 1 "$work/$1.txt")}, $(cat "$work/$1.seconds") s" "$(cat "$work/$1.status")"
}

part() { # part PART WHAT COMMAND ...
    local name=$1 what=$2
    shift 2
    begin "$name" "$@"
    finish "$name" "$what"
}

# leat must count exactly the steps that the script counted itself.
# shellcheck disable=SC2317 # begin calls them
check_training() { # check_training WORKERS
    "$leat" run --logs-dir "$work" --run-name "smoke-$1" examples/gpu_smoke.py --workers "$1" |
        tee "$work/out-$1" &&
        cp "$work/smoke-$1/final_summary.json" "$out/smoke-$1.json" &&
        python3 - "$out/smoke-$1.json" "$work/out-$1" <<'PYTHON'
import json, re, sys
summary = json.load(open(sys.argv[1]))
made = int(re.search(r"steps=(\d+)", open(sys.argv[2]).read()).group(1))
counted = summary["step_time"]["steps"]
pinned = (summary["input"]["hand_over"]["pin"] or {"n": 0})["n"]
print(f'{summary["verdict"]["label"]}, {counted} steps of {made}, median {summary["step_time"]["median"]:.2f} ms, {pinned} batches pinned')
sys.exit(counted != made or pinned < made)
PYTHON
}

# shellcheck disable=SC2317
check_bench() {
    "$leat" bench --quiet --json examples/gpu_smoke.py >"$out/bench.json" &&
        python3 - "$out/bench.json" <<'PYTHON'
import json, sys
bench = json.load(open(sys.argv[1]))
rows = bench["rows"]
workers = max(row["settings"]["num_workers"] for row in rows)
print(bench["choice"]["line"], "|", bench["verdict"]["bottleneck"], f'{bench["verdict"]["factor"]:.1f},', end=" ")
print(f'{len(rows)} rows of at most {workers} workers in {bench["search_s"]:.0f} s')
sys.exit(
    len({row["settings"]["pin_memory"] for row in rows if not row["settings"]["leat"]}) != 2
    or not any(row["settings"]["leat"] and row["status"] == "ok" for row in rows)
    or (bench["loader"]["device"], bench["loader"]["non_blocking"]) != ("cuda", True)
    or bench["model"]["steps"] < 3
    or workers > bench["limits"]["cpus"]
)
PYTHON
}

begin training check_training 0
begin training2 check_training 2
begin bench check_bench
begin lines python3 tools/gpu-lines.py "$(dirname "$leat")"
begin delivery python3 tests/gpu/test_device_delivery.py
begin calls python3 tools/gpu-probe.py "$(dirname "$leat")" --no-cost
finish training 'training, 0 workers'
finish training2 'training, 2 workers'
finish bench 'leat bench'
finish lines 'lines'
finish delivery 'delivery on the GPU'
finish calls 'calls of CUDA'
part cost 'cost of a call' python3 tools/gpu-probe.py "$(dirname "$leat")" --only-cost
schema=() # a GPU machine may lack the package
python3 -c 'import jsonschema' 2>/dev/null || schema=(--without-schema)
part verdicts 'verdict matrix' python3 tests/e2e/matrix.py --leat "$leat" --python "$(command -v python3)" \
    "${schema[@]}" --cases tests/gpu/cases --jobs 7
part clock 'clock of the device' python3 tools/gpu-clock.py "$(dirname "$leat")"
part bars 'delivery, bars' python3 bench/gpu_loader.py

echo
echo 'GPU check'
printf '%s\n' "${rows[@]}"
exit "$failed"
