#!/usr/bin/env bash
# build.sh: configures and compiles; --tests NAME does so with a sanitizer and runs the C tests.
#
#     tools/build.sh                       build/leat, build/python/leat, and leat.pth in .venv
#     tools/build.sh --tests plain         the C tests of build/, CLI transcripts and golden summaries too
#     tools/build.sh --check               the same, without PyTorch in .venv
#     tools/build.sh --tests asan [ROOM..] those of build-asan/ (AddressSanitizer, UBSan)
#     tools/build.sh --tests tsan          those of build-tsan/ (ThreadSanitizer)
#     tools/build.sh --tests fuzz          the fuzz targets of build-asan/, FUZZ_SECONDS (30) each

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
if [ "${1:-}" = --check ]; then
    tools/setup.sh check
else
    tools/setup.sh build
fi

# Meson takes the interpreter, whose headers the extension needs, from a machine file. A quote in the
# path is doubled up for Meson's syntax by sed.
native_file() {
    mkdir -p build
    local python
    python=$(printf '%s' "$PWD/.venv/bin/python" | sed "s/[\\\\']/\\\\&/g")
    printf "[binaries]\npython = '%s'\npython3 = '%s'\n" "$python" "$python" >build/native.ini.new
    cmp -s build/native.ini.new build/native.ini || mv build/native.ini.new build/native.ini
    rm -f build/native.ini.new
}

# configure FOLDER OPTION...: only once; ninja itself reconfigures when a meson.build changes. A
# folder that another path or a broken first try left behind is configured from scratch.
configure() {
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/.configured" 2>/dev/null)" = "$PWD $*" ]; then
        return 0
    fi
    local wipe=()
    [ ! -d "$folder/meson-private" ] || wipe=(--wipe)
    meson setup "${wipe[@]}" "$folder" --native-file build/native.ini "$@" || {
        rm -rf "$folder/meson-private" "$folder/meson-info" "$folder/build.ninja"
        meson setup "$folder" --native-file build/native.ini "$@"
    }
    printf '%s' "$PWD $*" >"$folder/.configured"
}

compile() { # compile FOLDER OPTION...
    configure "$@"
    ninja -C "$1"
}

# `import leat` in .venv finds what was built last.
link_package() {
    local site
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    [ "$(cat "$site/leat.pth" 2>/dev/null)" = "$PWD/build/python" ] ||
        printf '%s\n' "$PWD/build/python" >"$site/leat.pth"
    .venv/bin/python -c 'import leat'
}

options=(--buildtype debugoptimized -Dstatic_deps=true)
sanitized=(--buildtype debug -Db_lundef=false -Dwerror=true)
# detect_leaks stays on; TSan's own report of a data race must fail the test, not only be printed.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

native_file
suites=()
for room in "${@:3}"; do suites+=(--suite "$room"); done
case "${1:-} ${2:-}" in
' ')
    stage 'compile' compile build "${options[@]}"
    stage 'import leat' link_package
    ;;
'--tests plain' | '--check ')
    stage 'compile' compile build "${options[@]}"
    stage 'import leat' link_package
    stage 'C tests' meson test -C build --no-rebuild --print-errorlogs
    ;;
'--tests asan')
    stage 'compile (ASan, UBSan)' compile build-asan "${sanitized[@]}" -Db_sanitize=address,undefined
    stage "C tests (ASan, UBSan) ${*:3}" meson test -C build-asan --no-rebuild --print-errorlogs \
        --timeout-multiplier 4 "${suites[@]}"
    ;;
'--tests fuzz')
    stage 'compile (ASan, UBSan)' compile build-asan "${sanitized[@]}" -Db_sanitize=address,undefined
    LEAT_FUZZ_SECONDS=${FUZZ_SECONDS:-30} stage 'fuzzing (ASan, UBSan)' meson test -C build-asan \
        --no-rebuild --print-errorlogs --timeout-multiplier 4 --suite fuzz
    ;;
'--tests tsan')
    stage 'compile (TSan)' compile build-tsan "${sanitized[@]}" -Db_sanitize=thread
    stage 'C tests (TSan)' meson test -C build-tsan --no-rebuild --print-errorlogs --timeout-multiplier 8
    ;;
*) die "build.sh knows only --check and --tests plain, asan, tsan or fuzz." ;;
esac
