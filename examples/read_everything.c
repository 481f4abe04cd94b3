/* read_everything.c: the loader without Python. Reads every sample of a source in a shuffled order
 * and sums the bytes. In the middle of the epoch it saves the state, closes the loader and
 * continues with another one, as a restarted program would. Bad samples are left out and listed. It
 * does not train.
 *
 *     build/examples/read_everything npy x.npy y.npy
 *     build/examples/read_everything tokens train.bin 2048
 *     build/examples/read_everything lmdb train.lmdb
 *     build/examples/read_everything tar train-0*.tar
 *     build/examples/read_everything files 0*.jpg
 *     build/examples/read_everything --demo
 */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- sources: one function each, given the arguments after the name of the source --------------
 */
static int open_npy(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    return leat_source_npy((const char **)words, NULL, (uint32_t)count, source, err);
}

static int open_tokens(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    struct leat_tokens tokens = {.path = words[0], .dtype = LEAT_UINT16, .out = LEAT_INT64};
    tokens.length = count > 1 ? strtoll(words[1], NULL, 10) : 1024;
    return leat_source_tokens(&tokens, source, err);
}

static int open_lmdb(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    struct leat_lmdb lmdb = {.path = words[0], .value = {.kind = LEAT_CODEC_BYTES}};
    return leat_source_lmdb(&lmdb, source, err);
}

static int open_tar(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    struct leat_tar tar = {.shards = (const char **)words, .shard_count = (uint32_t)count};
    return leat_source_tar(&tar, source, err);
}

static int open_files(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    struct leat_files files = {.paths = (const char **)words, .count = count};
    return leat_source_files(&files, source, err);
}

/* A file in memory, which ends with the program. */
static void write_file(const void *data, size_t bytes, char *path, size_t path_bytes)
{
    int fd = memfd_create("demo", MFD_CLOEXEC);
    snprintf(path, path_bytes, "/proc/self/fd/%d", write(fd, data, bytes) > 0 ? fd : -1);
}

/* 2000 times a file of four numbers; one of them is cut short and becomes a bad sample. */
static int open_demo(char **words, int count, struct leat_source **source, struct leat_err *err)
{
    static const int64_t numbers[4] = {1, 2, 3, 4};
    static char whole[32], cut[32];
    const char *paths[2000];
    write_file(numbers, sizeof numbers, whole, sizeof whole);
    write_file(numbers, 20, cut, sizeof cut);
    for (int i = 0; i < 2000; i++)
        paths[i] = i == 1234 ? cut : whole;
    struct leat_files files = {.paths = paths, .count = 2000};
    files.value = (struct leat_codec){LEAT_CODEC_ARRAY, LEAT_INT64, 1, {4}, 0};
    return leat_source_files(&files, source, err);
}

static const struct {
    const char *name;
    int words; /* at least */
    int (*open)(char **words, int count, struct leat_source **source, struct leat_err *err);
} sources[] = {
    {"npy",    1, open_npy   },
    {"tokens", 1, open_tokens},
    {"lmdb",   1, open_lmdb  },
    {"tar",    1, open_tar   },
    {"files",  1, open_files },
    {"--demo", 0, open_demo  },
};

/* ---- reading -----------------------------------------------------------------------------------
 */
struct sums {
    int64_t samples, bad;
    uint64_t bytes;
};

static uint64_t add_up(const void *data, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += ((const uint8_t *)data)[i];
    return sum;
}

/* Rows of one size lie one after the other; samples of different length are an array of spans. */
static void add_batch(const struct leat_batch *batch, const struct leat_source *source,
                      struct sums *sums)
{
    for (uint32_t f = 0; f < batch->fields; f++) {
        const struct leat_field *field = leat_source_field(source, f);
        const struct leat_span *spans = batch->data[f];
        if (!field->variable)
            sums->bytes += add_up(batch->data[f], (uint64_t)batch->samples * field->row_bytes);
        for (int64_t i = 0; field->variable && i < batch->samples; i++)
            sums->bytes += add_up(spans[i].data, (uint64_t)spans[i].items * field->row_bytes);
    }
    sums->samples += batch->samples;
}

/* Reads up to `most` batches, and prints statistics. */
static int read_some(struct leat_loader *loader, const struct leat_source *source, int64_t most,
                     struct sums *sums, struct leat_err *err)
{
    struct leat_batch *batch;
    struct leat_loader_stats stats;
    struct leat_loader_error error;
    int got = 1;
    while (most-- > 0 && (got = leat_loader_next(loader, -1, &batch, err)) > 0) {
        add_batch(batch, source, sums);
        leat_batch_unref(batch);
    }
    leat_loader_stats(loader, &stats);
    sums->bad += (int64_t)stats.errors;
    printf("%llu batches by %d threads; waited %.3f s of %.3f\n", (unsigned long long)stats.batches,
           stats.threads, (double)stats.wait_ns / 1e9, (double)stats.elapsed_ns / 1e9);
    for (size_t i = 0; leat_loader_errors(loader, i, &error, 1); i++)
        printf("left out: sample %lld: %s\n", (long long)error.index, error.text);
    return got;
}

/* Half of the epoch with one loader, the rest with another. */
static int read_all(struct leat_source *source, struct sums *sums, struct leat_err *err)
{
    struct leat_loader_options options = {
        .batch_size = 16, .order = LEAT_ORDER_FULL, .seed = 1, .on_error = LEAT_ERROR_SKIP};
    struct leat_loader_state state;
    struct leat_loader *loader = NULL;
    int failed = leat_loader_new(source, &options, &loader, err);
    if (failed < 0)
        return failed;
    printf("source: %s\ndecode: %s\n", leat_source_text(source), leat_source_decode(source));
    failed = leat_loader_start(loader, 0, err);
    if (failed >= 0)
        failed = read_some(loader, source, leat_loader_batches(loader) / 2, sums, err);
    if (failed >= 0)
        failed = leat_loader_state(loader, &state, err);
    leat_loader_close(loader);
    if (failed < 0)
        return failed;
    options.threads = 1; /* threads, ranks and batch size may differ from before */
    failed = leat_loader_new(source, &options, &loader, err);
    if (failed < 0)
        return failed;
    failed = leat_loader_resume(loader, &state, err);
    if (failed >= 0)
        failed = read_some(loader, source, INT64_MAX, sums, err);
    leat_loader_close(loader);
    return failed;
}

int main(int argc, char **argv)
{
    struct leat_err err = {""};
    struct leat_source *source = NULL;
    struct sums sums = {0};
    size_t kind = 0, kinds = sizeof sources / sizeof *sources;
    while (kind < kinds && (argc < 2 || strcmp(argv[1], sources[kind].name) != 0))
        kind++;
    if (kind == kinds || argc - 2 < sources[kind].words) {
        fprintf(stderr, "usage: %s npy|tokens|lmdb|tar|files FILE... | --demo\n", argv[0]);
        return 2;
    }
    int failed = sources[kind].open(argv + 2, argc - 2, &source, &err);
    if (failed >= 0)
        failed = read_all(source, &sums, &err);
    if (failed < 0) {
        fprintf(stderr, "read_everything: %s\n", err.text);
    } else {
        printf("%lld samples, %lld bad ones; bytes add up to %llu\n", (long long)sums.samples,
               (long long)sums.bad, (unsigned long long)sums.bytes);
        failed = sums.samples + sums.bad == leat_source_count(source) ? 0 : -1; /* each once */
    }
    leat_source_unref(source);
    return failed < 0;
}
