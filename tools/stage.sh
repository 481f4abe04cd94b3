# shellcheck shell=bash
# stage.sh: one line a stage. Sourced by the other tools; moves to the root of the tree.
#
# A stage's output goes to a log, which is shown only when the stage fails, so that a good run is a
# handful of lines and a bad one ends with its reason. build/logs/failed names the logs of those that
# failed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    printf 'leat: %s\n' "$*" >&2
    exit 1
}

# Logs are kept below build/, which git ignores; the name of the stage makes the name of the file.
log_of() {
    printf 'build/logs/%s.log' "$(printf '%s' "$1" | tr -cs 'A-Za-z0-9' '-' | sed 's/-*$//')"
}

# stage NAME COMMAND...: runs the command, prints one line, returns its status. With keep_going=1 it
# returns 0 and counts in `failures` instead. A shell function as COMMAND stops at its first failure,
# provided that the stage is not itself part of a condition (`||`, `if`): bash ignores -e in there.
keep_going=0
failures=0
stage() {
    local name=$1 log status start=$SECONDS
    shift
    log=$(log_of "$name")
    mkdir -p build/logs
    [ ! -t 1 ] || printf '  %-34s ...\r' "$name"
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        printf '  %-34s ok %5d s\n' "$name" $((SECONDS - start))
        return 0
    fi
    printf '  %-34s FAILED (%d) %d s\n' "$name" "$status" $((SECONDS - start))
    tail -n "${LEAT_LOG_LINES:-60}" "$log" | sed 's/^/    | /'
    printf '    the whole log: %s\n' "$log"
    printf '%s\n' "$log" >>build/logs/failed
    failures=$((failures + 1))
    [ "$keep_going" -eq 1 ] || return "$status"
}
