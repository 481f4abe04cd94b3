/* test_loader_epochs.c: from one epoch to the next: what is made early, and what is delivered, kept
 * and discarded of it. */
#include "samples.h"

#include <sys/wait.h>

enum { N = 120, BATCH = 10, AHEAD = 3 };

static struct leat_loader_options plainly(void)
{
    return (struct leat_loader_options){.batch_size = BATCH,
                                        .order = LEAT_ORDER_FULL,
                                        .seed = 5,
                                        .threads = 2,
                                        .autotune = -1,
                                        .ahead = AHEAD};
}

/* All samples of an epoch that was begun, as they come; the last batch is still held. */
static struct leat_batch *take_all(struct leat_loader *l, int64_t indices[N])
{
    struct leat_batch *batch = NULL;
    for (int64_t at = 0; at < N; at += BATCH) {
        leat_batch_unref(batch);
        assert_non_null(batch = next(l));
        assert_int_equal(batch->samples, BATCH);
        assert_int_equal(batch->number, at / BATCH);
        for (int64_t i = 0; i < BATCH; i++) {
            assert_int_equal(((const int64_t *)batch->data[0])[i], batch->indices[i]);
            indices[at + i] = batch->indices[i];
        }
    }
    return batch;
}

/* The same by a loader that begins with that epoch. */
static void the_truth(uint64_t epoch, uint64_t seed, int64_t indices[N])
{
    struct faulty_source *source = faulty(N, NULL);
    struct leat_loader_options options = plainly();
    options.seed = seed;
    struct leat_loader *l = load(&source->base, options);
    must(leat_loader_start(l, epoch, &err));
    leat_batch_unref(take_all(l, indices));
    assert_null(next(l));
    assert_int_equal(source->reads, N);
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

static void must_be(struct leat_loader *l, uint64_t epoch, uint64_t seed)
{
    int64_t got[N], expected[N];
    the_truth(epoch, seed, expected);
    struct leat_batch *last = take_all(l, got);
    assert_int_equal(last->epoch, epoch);
    leat_batch_unref(last);
    assert_memory_equal(got, expected, sizeof got);
}

/* Whether so many samples are read without a call; ten seconds are for busy machines. */
static int comes_to(struct faulty_source *source, int reads)
{
    for (int i = 0; i < 10000 && atomic_load(&source->reads) < reads; i++)
        usleep(1000);
    return atomic_load(&source->reads) == reads;
}

static void nothing_is_read(struct faulty_source *source, int reads)
{
    usleep(30000);
    assert_int_equal(source->reads, reads);
}

/* Two epochs, all delivered, next() has not returned 0 yet. */
static struct leat_loader *after_two(struct faulty_source *source,
                                     struct leat_loader_options options)
{
    struct leat_loader *l = load(&source->base, options);
    must(leat_loader_start(l, 0, &err));
    must_be(l, 0, 5);
    assert_null(next(l));
    nothing_is_read(source, N); /* one epoch alone: the next one is unknown */
    must(leat_loader_start(l, 1, &err));
    must_be(l, 1, 5);
    return l;
}

static void the_next_epoch_is_begun_early(void **state)
{
    struct faulty_source *source = faulty(N, NULL);
    struct leat_loader *l = after_two(source, plainly());
    struct leat_loader_state where;
    struct leat_loader_stats stats;
    assert_true(comes_to(source, 2 * N + AHEAD * BATCH));
    must(leat_loader_state(l, &where, &err)); /* the loader is still in the old epoch */
    assert_int_equal(where.epoch, 1);
    assert_int_equal(where.position, N);
    assert_null(next(l));
    assert_null(next(l));
    must(leat_loader_state(l, &where, &err));
    assert_int_equal(where.epoch, 1);
    assert_int_equal(where.position, N);
    for (uint64_t epoch = 2; epoch < 6; epoch++) {
        must(leat_loader_start(l, epoch, &err));
        must(leat_loader_state(l, &where, &err));
        assert_int_equal(where.epoch, epoch);
        assert_int_equal(where.position, 0);
        must_be(l, epoch, 5);
        assert_null(next(l));
        /* Nothing is read twice. */
        assert_true(comes_to(source, (int)(epoch + 1) * N + AHEAD * BATCH));
    }
    leat_loader_stats(l, &stats);
    assert_int_equal(stats.batches, 6 * N / BATCH);
    assert_in_range(stats.slots, AHEAD, AHEAD + 2);
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

static void a_wrongly_begun_epoch_is_discarded(void **state)
{
    struct faulty_source *source = faulty(N, NULL);
    struct leat_loader *l = after_two(source, plainly());
    struct leat_loader_state where;
    must(leat_loader_start(l, 7, &err)); /* another epoch */
    must_be(l, 7, 5);
    int reads = source->reads;
    nothing_is_read(source, reads); /* it followed none */
    must(leat_loader_start(l, 8, &err));
    must_be(l, 8, 5);
    assert_null(next(l));
    must(leat_loader_state(l, &where, &err));
    where.epoch = 9;
    where.position = 0;
    where.seed = 77; /* another order */
    must(leat_loader_resume(l, &where, &err));
    must_be(l, 9, 77);
    where.epoch = 10;
    must(leat_loader_resume(l, &where, &err));
    must_be(l, 10, 77);
    where.epoch = 11;
    where.position = 3 * BATCH; /* in the middle of the epoch that was begun */
    must(leat_loader_resume(l, &where, &err));
    int64_t expected[N];
    the_truth(11, 77, expected);
    for (int64_t at = 3 * BATCH; at < N; at += BATCH) {
        struct leat_batch *batch = next(l);
        assert_non_null(batch);
        assert_memory_equal(batch->indices, expected + at, BATCH * sizeof *expected);
        leat_batch_unref(batch);
    }
    assert_null(next(l));
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

/* A state that was saved at the end of the last batch continues there, not in the epoch that was
 * begun. */
static void a_state_of_the_end_resumes_the_end(void **state)
{
    struct faulty_source *source = faulty(N, NULL);
    struct leat_loader *l = after_two(source, plainly());
    struct leat_loader_state where;
    must(leat_loader_state(l, &where, &err));
    must(leat_loader_resume(l, &where, &err));
    assert_null(next(l));
    must(leat_loader_start(l, 2, &err));
    must_be(l, 2, 5);
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

/* The caller's memory may be written to between two epochs. */
static void callers_memory_is_not_read_before_its_epoch(void **state)
{
    int64_t numbers[N];
    struct leat_array array = {
        .name = "number", .dtype = LEAT_INT64, .dims = 1, .shape = {N}, .data = numbers};
    struct leat_source *source;
    struct leat_batch *batch;
    must(leat_source_memory(&array, 1, NULL, NULL, &source, &err));
    struct leat_loader *l = load(source, plainly());
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        for (int64_t i = 0; i < N; i++)
            numbers[i] = 1000 * epoch + i;
        must(leat_loader_start(l, (uint64_t)epoch, &err));
        while ((batch = next(l))) {
            for (int64_t i = 0; i < batch->samples; i++)
                assert_int_equal(((const int64_t *)batch->data[0])[i],
                                 1000 * epoch + batch->indices[i]);
            leat_batch_unref(batch);
        }
        usleep(5000); /* time enough to read too early */
    }
    leat_loader_close(l);
    leat_source_unref(source);
}

static int is_third(int64_t index)
{
    return index % 3 == 0;
}

/* Bad samples of the epoch that was begun early are listed in that epoch, and skipped ones shorten
 * that epoch. */
static void bad_samples_count_in_their_own_epoch(void **state)
{
    struct faulty_source *source = faulty(N, is_third);
    struct leat_loader_options options = plainly();
    options.on_error = LEAT_ERROR_SKIP;
    struct leat_loader *l = load(&source->base, options);
    struct leat_batch *batch;
    struct leat_loader_stats stats;
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        int64_t samples = 0;
        must(leat_loader_start(l, epoch, &err));
        while ((batch = next(l))) {
            assert_int_equal(batch->epoch, epoch);
            samples += batch->samples;
            leat_batch_unref(batch);
        }
        assert_int_equal(samples, N - N / 3);
        usleep(5000);
        leat_loader_stats(l, &stats);
        assert_int_equal(stats.errors, (epoch + 1) * (N / 3));
    }
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

static void a_child_continues_in_the_epoch_begun_early(void **state)
{
    skip_with_sanitizers();
    struct faulty_source *source = faulty(N, NULL);
    struct leat_loader *l = after_two(source, plainly());
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        assert_null(next(l));
        must(leat_loader_start(l, 2, &err));
        must_be(l, 2, 5);
        _exit(0);
    }
    assert_null(next(l));
    must(leat_loader_start(l, 2, &err));
    must_be(l, 2, 5);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    leat_loader_close(l);
    leat_source_unref(&source->base);
}

/* Ways to end while the next epoch is being made. */
static void loaders_close_while_the_next_epoch_is_begun(void **state)
{
    struct faulty_source *source = faulty(N, NULL);
    struct leat_batch *batch;
    for (int round = 0; round < 20; round++) {
        struct leat_loader *l = load(&source->base, plainly());
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            must(leat_loader_start(l, epoch, &err));
            int64_t indices[N];
            leat_batch_unref(take_all(l, indices));
        }
        usleep((unsigned)round * 10);
        if (round % 2) {
            leat_loader_stop(l);
            assert_int_equal(leat_loader_next(l, -1, &batch, &err), -ECANCELED);
            must(leat_loader_start(l, 2, &err));
            assert_non_null(batch = next(l));
            leat_batch_unref(batch);
        }
        leat_loader_close(l);
    }
    leat_source_unref(&source->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_epoch_is_begun_early),
        cmocka_unit_test(a_wrongly_begun_epoch_is_discarded),
        cmocka_unit_test(a_state_of_the_end_resumes_the_end),
        cmocka_unit_test(callers_memory_is_not_read_before_its_epoch),
        cmocka_unit_test(bad_samples_count_in_their_own_epoch),
        cmocka_unit_test(a_child_continues_in_the_epoch_begun_early),
        cmocka_unit_test(loaders_close_while_the_next_epoch_is_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
