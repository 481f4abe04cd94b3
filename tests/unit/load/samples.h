/* samples.h: sources with known values for the tests of src/load: sample i holds the number i, so a
 * batch can be checked by itself; and one whose samples can be bad or slow. */
#ifndef LEAT_TESTS_SAMPLES_H
#define LEAT_TESTS_SAMPLES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "leat/loader.h"
#include "load/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The message of the last failed call. */
static struct leat_err err;

#define must(call)                                                                                 \
    do {                                                                                           \
        err.text[0] = 0;                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, err.text);                                                   \
    } while (0)

/* The sample i in two fields: "wide", float32[5] of i + 0 … i + 4, and "number", the int64 i. */
static inline struct leat_source *numbered(int64_t count)
{
    int64_t *numbers = malloc((size_t)(count ? count : 1) * sizeof *numbers);
    float *wide = malloc((size_t)(count ? count : 1) * 5 * sizeof *wide);
    void **owned = malloc(2 * sizeof *owned);
    owned[0] = numbers;
    owned[1] = wide;
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = i;
        for (int k = 0; k < 5; k++)
            wide[i * 5 + k] = (float)(i + k);
    }
    struct leat_array arrays[] = {
        {.name = "wide",   .dtype = LEAT_FLOAT32, .dims = 2, .shape = {count, 5}, .data = wide   },
        {.name = "number", .dtype = LEAT_INT64,   .dims = 1, .shape = {count},    .data = numbers}
    };
    extern void numbered_free(void *);
    struct leat_source *source = NULL;
    must(leat_source_memory(arrays, 2, numbered_free, owned, &source, &err));
    return source;
}

void numbered_free(void *);
void numbered_free(void *owned)
{
    free(((void **)owned)[0]);
    free(((void **)owned)[1]);
    free(owned);
}

/* Checks each row of a numbered batch against its index, and counts it in `seen`. */
static inline void check_rows(const struct leat_batch *batch, int *seen)
{
    const float *wide = batch->data[0];
    const int64_t *number = batch->data[1];
    for (int64_t i = 0; i < batch->samples; i++) {
        assert_int_equal(number[i], batch->indices[i]);
        for (int k = 0; k < 5; k++)
            assert_true(wide[i * 5 + k] == (float)(number[i] + k));
        seen[number[i]]++;
    }
}

/* A source of one int64 field "number" whose sample i is bad if bad(i), and takes slow_us. */
struct faulty_source {
    struct leat_source base;
    int (*bad)(int64_t index);
    atomic_int slow_us; /* a test changes it while threads read */
    int fails_whole;    /* read() itself fails when a sample is bad */
    atomic_int reads;   /* samples so far */
};

static inline int faulty_read(struct leat_source *source, const struct source_request *request,
                              struct source_report *report, struct leat_err *why)
{
    struct faulty_source *f = (struct faulty_source *)source;
    for (size_t i = 0; i < request->count; i++) {
        int64_t index = request->indices[i];
        atomic_fetch_add(&f->reads, 1);
        if (f->slow_us)
            usleep((unsigned)atomic_load(&f->slow_us));
        if (!f->bad || !f->bad(index)) {
            memcpy(request->places[0] + i * sizeof index, &index, sizeof index);
            continue;
        }
        if (f->fails_whole)
            return err_set(why, -LEAT_E_CORRUPT, "file %lld is torn", (long long)index);
        char text[64];
        snprintf(text, sizeof text, "file %lld is torn", (long long)index);
        report->bad(report, i, -LEAT_E_CORRUPT, text);
    }
    return 0;
}

static inline void faulty_done(struct leat_source *source) {}

static inline struct faulty_source *faulty(int64_t count, int (*bad)(int64_t index))
{
    static const struct source_ops ops = {.read = faulty_read, .done = faulty_done};
    struct faulty_source *f = (struct faulty_source *)source_new(sizeof *f, &ops);
    int64_t shape[] = {count};
    must(source_add_field(&f->base, "number", LEAT_INT64, 8, 1, shape, NULL, &err));
    f->bad = bad;
    f->base.sample_ns = 1000;
    return f;
}

static inline struct leat_loader *load(struct leat_source *source,
                                       struct leat_loader_options options)
{
    struct leat_loader *loader = NULL;
    must(leat_loader_new(source, &options, &loader, &err));
    return loader;
}

/* For tests that fork while threads work: a sanitizer allows the child no threads, or leaves it the
 * locks of its allocator as another thread had them. */
static inline void skip_with_sanitizers(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip();
#endif
}

/* The next batch; NULL at the end of the epoch; a failure fails the test. */
static inline struct leat_batch *next(struct leat_loader *loader)
{
    struct leat_batch *batch = NULL;
    must(leat_loader_next(loader, -1, &batch, &err));
    return batch;
}

#endif
