/* test_loader_errors.c: bad samples with each on_error: listed, and never old data in their place.
 */
#include "samples.h"

enum { N = 1000, BATCH = 32 };

static int is_bad(int64_t index)
{
    return index % 50 == 7; /* 20 of them */
}

static int is_bad_late(int64_t index)
{
    return index >= 900;
}

static int always_bad(int64_t index)
{
    return 1;
}

static struct leat_loader_options asked(enum leat_on_error on_error, int threads)
{
    return (struct leat_loader_options){
        .batch_size = BATCH, .order = LEAT_ORDER_FULL, .threads = threads, .on_error = on_error};
}

static void check_batch(const struct leat_batch *batch, int *seen)
{
    const int64_t *number = batch->data[0];
    for (int64_t i = 0; i < batch->samples; i++) {
        assert_int_equal(number[i], batch->indices[i]);
        assert_false(is_bad(number[i]));
        seen[number[i]]++;
    }
}

static void raise_names_the_sample(void **state)
{
    for (int fails_whole = 0; fails_whole < 2; fails_whole++) {
        static int seen[N];
        struct faulty_source *f = faulty(N, is_bad);
        f->fails_whole = fails_whole;
        f->base.sample_ns =
            fails_whole ? 1e9 : 1000; /* pieces of one sample: the rest stays good */
        struct leat_loader *l = load(&f->base, asked(LEAT_ERROR_RAISE, 2));
        struct leat_batch *batch;
        int got, raised = 0, fine = 0;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        while ((got = leat_loader_next(l, -1, &batch, &err)) != 0) {
            if (got < 0) {
                long long index, file;
                assert_int_equal(got, -LEAT_E_CORRUPT);
                assert_int_equal(sscanf(err.text, "Sample %lld: file %lld", &index, &file), 2);
                assert_int_equal(index, file);
                assert_true(is_bad(index));
                raised++;
                continue;
            }
            check_batch(batch, seen);
            leat_batch_unref(batch);
            fine++;
        }
        assert_int_equal(raised + fine, N / BATCH + 1);
        assert_in_range(raised, 1, 20);
        struct leat_loader_stats stats;
        leat_loader_stats(l, &stats);
        assert_int_equal(stats.errors, 20);
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

/* Each good sample once, each bad one listed once, all batches whole but the last. */
static void skip_keeps_size_and_repeats_nothing(void **state)
{
    static int64_t first_run[N];
    int64_t run[N];
    for (int threads = 1; threads < 4; threads++) {
        static int seen[N];
        struct faulty_source *f = faulty(N, is_bad);
        struct leat_loader *l = load(&f->base, asked(LEAT_ERROR_SKIP, threads));
        struct leat_batch *batch;
        int64_t samples = 0;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            check_batch(batch, seen);
            memcpy(run + samples, batch->indices, (size_t)batch->samples * 8);
            samples += batch->samples;
            assert_int_equal(batch->samples, samples < N - 20 ? BATCH : (N - 20) % BATCH);
            leat_batch_unref(batch);
        }
        assert_int_equal(samples, N - 20);
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], !is_bad(i));
        struct leat_loader_error errors[30];
        assert_int_equal(leat_loader_errors(l, 0, errors, 30), 20);
        for (int i = 0; i < 20; i++) {
            char expected[64];
            snprintf(expected, sizeof expected, "file %lld is torn", (long long)errors[i].index);
            assert_string_equal(errors[i].text, expected);
            assert_int_equal(seen[errors[i].index]++, 0); /* each is another one */
        }
        if (threads == 1)
            memcpy(first_run, run, sizeof run);
        assert_memory_equal(first_run, run, (N - 20) * sizeof *run); /* for any number of threads */
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

static void skip_resumes_at_the_same_place(void **state)
{
    for (int64_t at = 0; at <= 30; at += 5) {
        static int seen[N];
        struct faulty_source *f = faulty(N, is_bad);
        struct leat_loader *l = load(&f->base, asked(LEAT_ERROR_SKIP, 2));
        struct leat_loader_state s;
        struct leat_batch *batch;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        for (int64_t i = 0; i < at; i++) {
            check_batch(batch = next(l), seen);
            leat_batch_unref(batch);
        }
        must(leat_loader_state(l, &s, &err));
        leat_loader_close(l);
        l = load(&f->base, asked(LEAT_ERROR_SKIP, 1));
        must(leat_loader_resume(l, &s, &err));
        while ((batch = next(l))) {
            check_batch(batch, seen);
            leat_batch_unref(batch);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], !is_bad(i));
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

static void replace_keeps_size(void **state)
{
    static int64_t first_run[N];
    for (int threads = 1; threads < 4; threads++) {
        static int seen[N];
        int64_t run[N];
        struct faulty_source *f = faulty(N, is_bad);
        struct leat_loader *l = load(&f->base, asked(LEAT_ERROR_REPLACE, threads));
        struct leat_batch *batch;
        int64_t samples = 0;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            check_batch(batch, seen);
            memcpy(run + samples, batch->indices, (size_t)batch->samples * 8);
            samples += batch->samples;
            leat_batch_unref(batch);
        }
        assert_int_equal(samples, N);
        for (int i = 0; i < N; i++)
            assert_in_range(seen[i], is_bad(i) ? 0 : 1, is_bad(i) ? 0 : 5);
        if (threads == 1)
            memcpy(first_run, run, sizeof run);
        assert_memory_equal(first_run, run, sizeof run);
        struct leat_loader_stats stats;
        leat_loader_stats(l, &stats);
        assert_true(stats.errors >= 20);
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

/* The replacements are bad themselves. */
static void skip_works_when_the_last_samples_are_bad(void **state)
{
    for (int drop_last = 0; drop_last < 2; drop_last++) {
        static int seen[N];
        struct faulty_source *f = faulty(N, is_bad_late);
        struct leat_loader_options options = asked(LEAT_ERROR_SKIP, 2);
        options.order = LEAT_ORDER_SEQUENTIAL;
        options.drop_last = drop_last;
        struct leat_loader *l = load(&f->base, options);
        struct leat_batch *batch;
        memset(seen, 0, sizeof seen);
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            for (int64_t i = 0; i < batch->samples; i++)
                seen[((int64_t *)batch->data[0])[i]]++;
            leat_batch_unref(batch);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], i < (drop_last ? 900 / BATCH * BATCH : 900));
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

static void a_source_of_bad_samples_is_an_empty_epoch(void **state)
{
    struct faulty_source *f = faulty(N, always_bad);
    struct leat_batch *batch;
    struct leat_loader *l = load(&f->base, asked(LEAT_ERROR_SKIP, 1));
    must(leat_loader_start(l, 0, &err));
    assert_null(next(l));
    struct leat_loader_stats stats;
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.errors, N);
    leat_loader_close(l);
    l = load(&f->base, asked(LEAT_ERROR_REPLACE, 1));
    must(leat_loader_start(l, 0, &err));
    assert_int_equal(leat_loader_next(l, -1, &batch, &err), -LEAT_E_CORRUPT);
    leat_loader_close(l);
    leat_source_unref(&f->base);
}

/* With given indices no sample can be taken from the end: the batch gets shorter, in order. */
static void given_batches_get_shorter(void **state)
{
    struct faulty_source *f = faulty(N, is_bad);
    struct leat_loader_options options = asked(LEAT_ERROR_SKIP, 1);
    options.order = LEAT_ORDER_GIVEN;
    struct leat_loader *l = load(&f->base, options);
    int64_t first[] = {7, 1, 57, 107, 2, 3, 157}, bad[] = {7, 57}, last[] = {9};
    static const int64_t left[] = {1, 2, 3};
    must(leat_loader_submit(l, first, 7, &err));
    must(leat_loader_submit(l, bad, 2, &err));
    must(leat_loader_submit(l, last, 1, &err));
    struct leat_batch *batch = next(l);
    assert_int_equal(batch->samples, 3);
    assert_memory_equal(batch->data[0], left, sizeof left);
    assert_memory_equal(batch->indices, left, sizeof left);
    leat_batch_unref(batch);
    batch = next(l); /* nothing of the second was left */
    assert_int_equal(batch->samples, 1);
    assert_int_equal(batch->indices[0], 9);
    leat_batch_unref(batch);
    assert_null(next(l));
    leat_loader_close(l);
    leat_source_unref(&f->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raise_names_the_sample),
        cmocka_unit_test(skip_keeps_size_and_repeats_nothing),
        cmocka_unit_test(skip_resumes_at_the_same_place),
        cmocka_unit_test(replace_keeps_size),
        cmocka_unit_test(skip_works_when_the_last_samples_are_bad),
        cmocka_unit_test(a_source_of_bad_samples_is_an_empty_epoch),
        cmocka_unit_test(given_batches_get_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
