#!/usr/bin/env bash
# fresh_clone.sh: what a newcomer does. Clones the last commit into a folder with blanks in its name,
# then `make build` twice (the second time must have nothing to do) and `make demo` twice in a row, each of
# which must finish within two minutes: after installation, the first verdict takes no longer.
#
#     make fresh                            as the caller, on a machine without other load
#     tests/fresh_clone.sh --user NAME      as root, for that user
#
# Not part of `make test`: it downloads PyTorch, and other programs at work make it slower.
set -euo pipefail
source_folder=$(cd "$(dirname "$0")/.." && pwd)

as=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder="$work/a new  clone"
git clone -q "$source_folder" "$folder"
if [ "${1:-}" = --user ]; then
    # A login shell's environment: nothing of the caller's, so that the caller's Python is not found.
    as=(runuser -u "$2" -- env -i "HOME=$(getent passwd "$2" | cut -d: -f6)" "USER=$2" LANG=C.UTF-8
        PATH=/usr/local/bin:/usr/bin:/bin)
    for name in ${FRESH_KEEP:-}; do as+=("$name=${!name}"); done
    chmod 755 "$work"
    chown -R "$2" "$folder"
fi
cd "$folder"

DEMO_MOST_S=120

try() {
    echo "== $*"
    "${as[@]}" "$@"
}

try make build
before=$(stat -c %Y build/leat)
try make build | tee "$work/second"
[ "$(stat -c %Y build/leat)" = "$before" ] || { echo 'the second make build rebuilt leat' >&2; exit 1; }
! grep -E 'pip|packages|environment' "$work/second" || { echo 'the second make build set up again' >&2; exit 1; }
(cd / && "${as[@]}" "$folder/.venv/bin/python" -c 'import leat, torch; print("import leat:", leat.__file__)')
for turn in first second; do
    start=$SECONDS
    try make demo
    took=$((SECONDS - start))
    echo "== the $turn make demo took $took s"
    [ "$took" -le "$DEMO_MOST_S" ] || { echo "the $turn make demo took more than $DEMO_MOST_S s" >&2; exit 1; }
done
echo '== fresh clone: all well'
