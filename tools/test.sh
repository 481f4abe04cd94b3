#!/usr/bin/env bash
# test.sh: every test, one stage after the other; a stage that fails does not keep the others from
# running. Ends with a table and the last lines of what failed, and fails when any stage did.
#
#     tools/test.sh                 all stages
#     tools/test.sh python cli      only these

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"

python=.venv/bin/python
all=(build layers c python cli faults docs asan tsan wheel matrix)
[ $# -gt 0 ] || set -- "${all[@]}"

run_stage() {
    case $1 in
    build) tools/build.sh ;;
    layers) stage 'layers' "$python" tests/layers.py ;;
    c) tools/build.sh --tests plain ;;
    python) stage 'Python tests' "$python" -m pytest -q --no-header tests/python ;;
    cli) stage 'CLI transcripts' "$python" tests/cli/run.py build/leat ;;
    faults) stage 'faults of a run' "$python" -m pytest -q --no-header tests/e2e ;;
    docs)
        keep_going=1
        stage 'documents' "$python" tests/packaging/docs.py
        stage 'summaries and their schema' "$python" tests/cli/schema.py build/tests/cli/summarize_run
        [ "$failures" -eq 0 ]
        ;;
    asan | tsan) tools/build.sh --tests "$1" ;;
    wheel) tools/wheel.sh ;;
    matrix) stage 'verdict matrix' "$python" tests/e2e/matrix.py --second-try ;;
    *) die "there is no stage \"$1\"; there are: ${all[*]}." ;;
    esac
}

failed=0
table=()
mkdir -p build/logs
: >build/logs/failed
for name; do
    start=$SECONDS
    # Not in a condition, where bash would switch -e off inside the function: in a shell of its own.
    set +e
    (
        set -e
        run_stage "$name"
    )
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        word=passed
    else
        word=FAILED
        failed=$((failed + 1))
    fi
    table+=("$(printf '  %-12s %-7s %5d s' "$name" "$word" $((SECONDS - start)))")
    # Without a build nothing below can say anything.
    [ "$name" != build ] || [ "$status" -eq 0 ] || break
done

echo
echo 'Summary'
printf '%s\n' "${table[@]}"
if [ "$failed" -gt 0 ] || [ ${#table[@]} -lt $# ]; then
    printf '\n%d of %d stages failed, %d did not run.\n' "$failed" $# $(($# - ${#table[@]}))
    while read -r log; do
        printf '\n%s ends with\n' "$log"
        tail -n 8 "$log" | cut -c 1-160 | sed 's/^/  | /'
    done <build/logs/failed
    exit 1
fi
printf '\nAll %d stages passed in %d s.\n' $# "$SECONDS"
