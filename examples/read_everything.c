/* read_everything.c: the loader without Python. Reads every sample of some .npy files, or of a file
 * of tokens, in a shuffled order, adds up the bytes, and says how fast that was. Trains nothing.
 *
 *     build/examples/read_everything x.npy y.npy
 *     build/examples/read_everything --tokens train.bin --length 2048
 *     build/examples/read_everything --demo
 */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const char *tokens;
    int64_t length;
    int demo;
    int epochs;
    const char **files;
    uint32_t files_count;
};

static float demo_rows[100000][16];
static int64_t demo_labels[100000];

static int open_source(const struct job *job, struct leat_source **source, struct leat_err *err)
{
    if (job->tokens) {
        struct leat_tokens tokens = {
            .path = job->tokens, .dtype = LEAT_UINT16, .out = LEAT_INT64, .length = job->length};
        return leat_source_tokens(&tokens, source, err);
    }
    if (!job->demo)
        return leat_source_npy(job->files, NULL, job->files_count, source, err);
    for (int i = 0; i < 100000; i++) {
        demo_labels[i] = i % 10;
        for (int k = 0; k < 16; k++)
            demo_rows[i][k] = (float)(i + k);
    }
    struct leat_array arrays[] = {
        {.name = "x", .dtype = LEAT_FLOAT32, .dims = 2, .shape = {100000, 16}, .data = demo_rows  },
        {.name = "y", .dtype = LEAT_INT64,   .dims = 1, .shape = {100000},     .data = demo_labels}
    };
    return leat_source_memory(arrays, 2, NULL, NULL, source, err);
}

static uint64_t add_up(const struct leat_batch *batch, const struct leat_source *source)
{
    uint64_t sum = 0;
    for (uint32_t f = 0; f < batch->fields; f++) {
        uint64_t bytes = (uint64_t)batch->samples * leat_source_field(source, f)->row_bytes;
        const uint8_t *data = batch->data[f];
        for (uint64_t i = 0; i < bytes; i++)
            sum += data[i];
    }
    return sum;
}

static int read_epochs(struct leat_loader *loader, struct leat_source *source, int epochs,
                       struct leat_err *err)
{
    for (int epoch = 0; epoch < epochs; epoch++) {
        struct leat_batch *batch;
        uint64_t sum = 0;
        int64_t samples = 0;
        int got = leat_loader_start(loader, (uint64_t)epoch, err);
        while (got >= 0 && (got = leat_loader_next(loader, -1, &batch, err)) > 0) {
            samples += batch->samples;
            sum += add_up(batch, source);
            leat_batch_unref(batch);
        }
        if (got < 0)
            return got;
        printf("epoch %d: %lld samples, bytes add up to %llu\n", epoch, (long long)samples,
               (unsigned long long)sum);
    }
    return 0;
}

static void print_stats(const struct leat_loader *loader)
{
    struct leat_loader_stats s;
    leat_loader_stats(loader, &s);
    printf("%.2f s: %llu batches, %.0f samples/s, %.2f GB/s; waited %.2f s; %llu bad samples\n",
           (double)s.elapsed_ns / 1e9, (unsigned long long)s.batches,
           (double)s.samples / ((double)s.elapsed_ns / 1e9), (double)s.bytes / (double)s.elapsed_ns,
           (double)s.wait_ns / 1e9, (unsigned long long)s.errors);
}

static int run(const struct job *job, struct leat_err *err)
{
    struct leat_source *source = NULL;
    struct leat_loader *loader = NULL;
    struct leat_loader_options options = {
        .batch_size = 256, .order = LEAT_ORDER_FULL, .on_error = LEAT_ERROR_SKIP};
    char plan[1024];
    int failed = open_source(job, &source, err);
    if (failed < 0)
        goto out;
    failed = leat_loader_new(source, &options, &loader, err);
    if (failed < 0)
        goto out;
    leat_loader_plan(loader, plan, sizeof plan);
    fputs(plan, stdout);
    failed = read_epochs(loader, source, job->epochs, err);
    print_stats(loader);
out:
    leat_loader_close(loader);
    leat_source_unref(source);
    return failed;
}

int main(int argc, char **argv)
{
    struct job job = {.length = 1024, .epochs = 2, .files = (const char **)argv};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--demo") == 0)
            job.demo = 1;
        else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
            job.tokens = argv[++i];
        else if (strcmp(argv[i], "--length") == 0 && i + 1 < argc)
            job.length = strtoll(argv[++i], NULL, 10);
        else
            job.files[job.files_count++] = argv[i];
    }
    if (!job.demo && !job.tokens && !job.files_count) {
        fprintf(stderr, "usage: %s FILE.npy... | --tokens FILE.bin [--length N] | --demo\n",
                argv[0]);
        return 2;
    }
    struct leat_err err = {""};
    if (run(&job, &err) < 0) {
        fprintf(stderr, "read_everything: %s\n", err.text);
        return 1;
    }
    return 0;
}
