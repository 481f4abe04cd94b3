#!/usr/bin/env bash
# test.sh: the tests, one stage after the other. A stage that fails does not stop the others. At the
# end: the end of each log that has a failure, the names of the tests that failed, and a table of the
# stages with their times.
#
#     tools/test.sh check                     what needs no PyTorch: about a minute
#     tools/test.sh test                      every room once
#     tools/test.sh ci                        and lint, all sanitizers, long fuzzing
#     tools/test.sh all                       and the matrix twice more, and once with a busy core
#     tools/test.sh python lint               single stages
#     tools/test.sh --begin-within 3300 --end-within 5000 ci
#                                             as many stages of `ci` as fit: what is not in `test`
#                                             begins within 3300 s, and is ended after 5000 s

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

python=.venv/bin/python
check=(layers c-alone)
test=(build layers c docs python python-alone faults matrix asan-input wheel)
analysis=(lint asan tsan fuzz)                   # the most valuable first
repeats=(matrix-busy matrix-2 matrix-3)          # how often a verdict is right
more=("${analysis[@]}" "${repeats[@]}")
input_rooms=(base record load store report fuzz) # those that parse foreign bytes

begin_within=0 end_within=0
while [ $# -gt 0 ]; do
    case $1 in
    --begin-within) begin_within=$2 && shift 2 ;;
    --end-within) end_within=$2 && shift 2 ;;
    *) break ;;
    esac
done
case "$*" in
check) stages=("${check[@]}") ;;
test | '') stages=("${test[@]}") ;;
ci) stages=("${test[@]}" "${analysis[@]}") ;;
all) stages=("${test[@]}" "${more[@]}") ;;
*) stages=("$@") ;;
esac

run_pytest() { "$python" -m pytest -q --no-header --tb=short "$@"; }

run_stage() {
    case $1 in
    build) tools/build.sh ;;
    layers) stage 'layers' python3 tests/layers.py ;;
    c) tools/build.sh --tests plain ;;
    c-alone) tools/build.sh --check ;;
    python) stage 'Python tests' run_pytest -n 2 --dist worksteal -m 'not alone' tests/python ;;
    python-alone) stage 'Python tests, one at a time' run_pytest -m alone tests/python ;;
    faults) stage 'faults of a run' run_pytest -n 2 --dist worksteal tests/e2e ;;
    docs) stage 'documents' "$python" tests/packaging/docs.py ;;
    asan-input) tools/build.sh --tests asan "${input_rooms[@]}" ;;
    asan | tsan | fuzz) tools/build.sh --tests "$1" ;;
    lint) tools/lint.sh ;;
    wheel) tools/wheel.sh ;;
    matrix | matrix-2 | matrix-3) stage "verdict ${1/-/ }" "$python" tests/e2e/matrix.py ;;
    matrix-busy) stage 'verdict matrix, a core busy' "$python" tests/e2e/matrix.py --busy ;;
    *) die "there is no stage \"$1\"; there are: check, test, ci, all, or ${test[*]} ${more[*]}." ;;
    esac
}

is_optional() { [[ $begin_within -gt 0 && " ${more[*]} " == *" $1 "* ]]; }

# In a shell of its own, and not as a condition, where bash would ignore -e.
limited_stage() {
    local left=$((end_within - SECONDS))
    if is_optional "$1" && [ "$end_within" -gt 0 ]; then
        timeout --kill-after 10 $((left > 1 ? left : 1)) tools/test.sh --one "$1"
    else
        (
            set -e
            run_stage "$1"
        )
    fi
}

# The tests that a log names as failed, as pytest, meson and the matrix write them.
failed_tests() {
    sed -nE 's/^((FAILED|ERROR) tests\/.*)$/\1/p; s/^ *[0-9]+\/[0-9]+ +(.*[^ ]) +(FAIL|TIMEOUT|ERROR) .*$/\2 \1/p; s/^(WRONG +[^ ]+).*$/\1/p' \
        "$1" | cut -c 1-150 | sort -u
}

if [ "${stages[0]}" = --one ]; then
    run_stage "${stages[1]}"
    exit
fi
mkdir -p build/logs
: >build/logs/failed
failed=0 left_out=0
table=()
for name in "${stages[@]}"; do
    start=$SECONDS
    if is_optional "$name" && [ "$start" -ge "$begin_within" ]; then
        table+=("$(printf '  %-14s %-12s' "$name" 'not run')")
        left_out=$((left_out + 1))
        continue
    fi
    set +e
    limited_stage "$name"
    status=$?
    set -e
    word=passed
    if [ "$status" -eq 124 ] && is_optional "$name"; then
        word='no time left'
        left_out=$((left_out + 1))
    elif [ "$status" -ne 0 ]; then
        word=FAILED
        failed=$((failed + 1))
    fi
    table+=("$(printf '  %-14s %-12s %5d s' "$name" "$word" $((SECONDS - start)))")
    if [ "$name" = build ] && [ "$status" -ne 0 ]; then
        table+=('  the stages after it need a build')
        break
    fi
done

if [ "$failed" -gt 0 ]; then
    while read -r log; do
        printf '\n%s ends with\n' "$log"
        tail -n 8 "$log" | cut -c 1-160 | sed 's/^/  | /'
    done <build/logs/failed
    printf '\nFailed tests\n'
    while read -r log; do failed_tests "$log" | sed 's/^/  /'; done <build/logs/failed
fi
printf '\nStages\n'
printf '%s\n' "${table[@]}"
printf '%d failed, %d not run to the end for lack of time; %d s in all.\n' "$failed" "$left_out" "$SECONDS"
[ "$failed" -eq 0 ]
