#!/usr/bin/env bash
# lint.sh: the analysers, each kept at zero. --fix lets the formatters rewrite the files instead.

source "$(dirname "${BASH_SOURCE[0]}")/stage.sh"
tools/setup.sh lint

mapfile -d '' -t c_files < <(find src include python tests bench examples -name .venv -prune -o \
    \( -name '*.c' -o -name '*.h' \) -print0 2>/dev/null | sort -z)
mapfile -d '' -t shell_files < <(find tools tests .ci -name '*.sh' -print0 | sort -z)
mapfile -d '' -t python_folders < <(find . -maxdepth 1 \( -name python -o -name tests -o -name bench \
    -o -name examples -o -name tools \) -print0)

# 14 is what Debian 12 has; later ones lay a few lines out otherwise.
format=clang-format
! command -v clang-format-14 >/dev/null || format=clang-format-14
version=$("$format" --version | grep -o '[0-9]\+' | head -n 1)

if [ "${1:-}" = --fix ]; then
    "$format" -i "${c_files[@]}"
    .venv/bin/python -m ruff check -q --fix "${python_folders[@]}" || true
    .venv/bin/python -m ruff format -q "${python_folders[@]}"
    exit 0
fi

# Each note that is left out has its reason:
#   missingInclude*      system headers are not given to it
#   normalCheckLevel...  advice on cppcheck's own options
#   varFuncNullUB        NULL is a pointer in every libc of Linux
#   invalidPointerCast   a field found by its offset
# shellcheck disable=SC2317 # stages call them
analyse() {
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppress=missingInclude --suppress=missingIncludeSystem \
        --suppress=normalCheckLevelMaxBranches --suppress=varFuncNullUB \
        --suppress=invalidPointerCast --error-exitcode=1 --library=tools/cppcheck.cfg \
        -D_GNU_SOURCE '-DLEAT_VERSION="0"' -Iinclude -Isrc "$@"
}
# An analyser that chokes on its own options finds nothing either: it must find this leak first.
# shellcheck disable=SC2317
check_c() {
    printf 'int f(void)\n{\n    char *p = malloc(4);\n    return *p;\n}\n' >build/logs/planted.c
    if analyse build/logs/planted.c 2>build/logs/planted.txt || ! grep -q memleak build/logs/planted.txt; then
        echo 'cppcheck did not find the planted leak; it said:'
        cat build/logs/planted.txt
        return 1
    fi
    analyse src python
}

keep_going=1
if [ "$version" = 14 ]; then
    stage 'clang-format' "$format" --dry-run --Werror "${c_files[@]}"
else
    echo "  clang-format                       left out: this is $version, the style is that of 14"
fi
stage 'ruff check' .venv/bin/python -m ruff check "${python_folders[@]}"
stage 'ruff format' .venv/bin/python -m ruff format --check "${python_folders[@]}"
stage 'cppcheck' check_c
stage 'shellcheck' shellcheck -x -P SCRIPTDIR .ci/run "${shell_files[@]}"
[ "$failures" -eq 0 ]
