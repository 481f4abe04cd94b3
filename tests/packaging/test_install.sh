#!/usr/bin/env bash
# test_install.sh BUILD SOURCE: what `meson install` leaves is enough for a C program outside the
# tree: headers that stand alone, a library to link, and pkg-config that knows both.
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

meson install -C "$build" --no-rebuild --destdir "$work/root" --tags devel >install.log 2>&1 ||
    { cat install.log; exit 1; }
pc=$(find root -name leat.pc)
[ -n "$pc" ] || { echo 'leat.pc was not installed'; exit 1; }
export PKG_CONFIG_PATH=$work/${pc%/*}:${PKG_CONFIG_PATH:-}
# The files lie below root, as in a package that is being made.
read -r -a flags <<<"$(PKG_CONFIG_SYSROOT_DIR=$work/root pkg-config --cflags leat)"
read -r -a libs <<<"$(PKG_CONFIG_SYSROOT_DIR=$work/root pkg-config --libs leat)"
# Without a sysroot the libraries of the system are where they are.
for i in "${!libs[@]}"; do
    case ${libs[i]} in
    -L"$work"/root*) [ -d "${libs[i]#-L}" ] || libs[i]=-L${libs[i]#-L"$work"/root} ;;
    esac
done
cc=${CC:-cc}

# Each header stands alone, in C and in C++, with warnings as errors.
for header in "$source"/include/leat/*.h; do
    name=leat/${header##*/}
    printf '#include <%s>\nint unused_%s;\n' "$name" x >alone.c
    "$cc" -std=c11 -Wall -Wextra -Werror -pedantic "${flags[@]}" -c alone.c -o alone.o
    if command -v c++ >/dev/null; then
        c++ -x c++ -std=c++17 -Wall -Wextra -Werror "${flags[@]}" -c alone.c -o alone.o
    fi
done

# A program that has names of leat's insides for itself.
cat >program.c <<'END'
#include <leat/loader.h>
#include <leat/recorder.h>
#include <stdio.h>
#include <stdlib.h>

/* leat has functions of these names inside. */
int mem_alloc(void);
int path_join(void);
int err_set(void);
int mem_alloc(void) { abort(); }
int path_join(void) { abort(); }
int err_set(void) { abort(); }

enum { N = 1009 };

int main(void)
{
    static int64_t x[N];
    static int seen[N];
    struct leat_err err = {""};
    struct leat_source *source;
    struct leat_loader *loader;
    struct leat_batch *batch;
    int64_t samples = 0;
    int got;
    for (int i = 0; i < N; i++)
        x[i] = i;
    struct leat_array array = {.name = "x", .dtype = LEAT_INT64, .dims = 1, .shape = {N}, .data = x};
    struct leat_loader_options options = {.batch_size = 32, .order = LEAT_ORDER_FULL};
    if (leat_source_memory(&array, 1, NULL, NULL, &source, &err) < 0 ||
        leat_loader_new(source, &options, &loader, &err) < 0 ||
        leat_loader_start(loader, 0, &err) < 0)
        return fprintf(stderr, "%s\n", err.text), 1;
    while ((got = leat_loader_next(loader, -1, &batch, &err)) > 0) {
        const int64_t *rows = batch->data[0];
        for (int64_t i = 0; i < batch->samples; i++)
            seen[rows[i]]++;
        samples += batch->samples;
        leat_batch_unref(batch);
    }
    leat_loader_close(loader);
    leat_source_unref(source);
    for (int i = 0; i < N; i++)
        if (seen[i] != 1)
            return fprintf(stderr, "sample %d came %d times\n", i, seen[i]), 1;
    leat_recorder_open(); /* no leat: no effect */
    printf("%lld samples\n", (long long)samples);
    return got < 0;
}
END
"$cc" -std=c11 -Wall -Wextra -Werror "${flags[@]}" program.c -o program "${libs[@]}"
said=$(./program)
[ "$said" = '1009 samples' ] || { echo "the program said: $said"; exit 1; }

# Nothing of it goes into the wheel, which takes other tags.
if grep -n 'tags=.*devel' "$source/pyproject.toml"; then
    echo 'the wheel would take the headers and the library'
    exit 1
fi
echo 'ok: headers, library and pkg-config'
