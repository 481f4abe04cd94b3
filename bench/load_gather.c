/* load_gather.c: how fast the engine gathers rows in memory, without Python: the C part of
 * bench/loader.py, and what the constants of src/load/source/array/gather.c were measured with.
 *
 *     build/bench/load_gather ROWS ROW_BYTES BATCH [THREADS [EPOCHS [AHEAD]]]
 *
 * Prints one line an epoch: seconds, GB/s, and where the time went.
 */
#include "leat/loader.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long long argument(int argc, char **argv, int i, long long otherwise)
{
    return argc > i ? atoll(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    int64_t rows = argument(argc, argv, 1, 7000000), row_bytes = argument(argc, argv, 2, 400);
    struct leat_loader_options options = {.batch_size = argument(argc, argv, 3, 65536),
                                          .order = LEAT_ORDER_FULL,
                                          .threads = (int)argument(argc, argv, 4, 2),
                                          .ahead = (int)argument(argc, argv, 6, 0)};
    struct leat_err err = {""};
    struct leat_source *source;
    struct leat_loader *loader;
    struct leat_batch *batch;
    uint8_t *data = malloc((size_t)(rows * row_bytes));
    if (!data)
        return 1;
    memset(data, 1, (size_t)(rows * row_bytes));
    struct leat_array array = {
        .dtype = LEAT_UINT8, .dims = 2, .shape = {rows, row_bytes},
                .data = data
    };
    if (leat_source_memory(&array, 1, NULL, NULL, &source, &err) < 0 ||
        leat_loader_new(source, &options, &loader, &err) < 0) {
        fprintf(stderr, "load_gather: %s\n", err.text);
        return 1;
    }
    struct leat_loader_stats before = {0}, s;
    for (int epoch = 0; epoch < argument(argc, argv, 5, 3); epoch++) {
        uint64_t t0 = clock_now_ns();
        leat_loader_start(loader, (uint64_t)epoch, &err);
        while (leat_loader_next(loader, -1, &batch, &err) > 0)
            leat_batch_unref(batch);
        double seconds = (double)(clock_now_ns() - t0) / 1e9;
        leat_loader_stats(loader, &s);
        printf(
            "%.3f s  %.2f GB/s  order %.3f  read %.3f  wait %.3f  help %.3f  idle %.3f\n", seconds,
            (double)(s.bytes - before.bytes) / seconds / 1e9,
            (double)(s.order_ns - before.order_ns) / 1e9,
            (double)(s.read_ns - before.read_ns) / 1e9, (double)(s.wait_ns - before.wait_ns) / 1e9,
            (double)(s.help_ns - before.help_ns) / 1e9, (double)(s.idle_ns - before.idle_ns) / 1e9);
        before = s;
    }
    leat_loader_close(loader);
    leat_source_unref(source);
    free(data);
    return 0;
}
