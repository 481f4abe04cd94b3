/* test_loader_memory.c: the n-th allocation fails, for every n: an error or the right data, no leak
 * (by ASan), no hang; and memory that does not grow over many epochs. */
#include "samples.h"

#include "base/mem.h"

enum { N = 300, BATCH = 20 };

static int is_bad(int64_t index)
{
    return index % 30 == 11;
}

/* All that a program does with a loader. 0, or the code of the failure. */
static int whole_life(enum leat_on_error on_error, enum leat_order order)
{
    struct leat_loader_options options = {
        .batch_size = BATCH, .order = order, .threads = 2, .on_error = on_error, .ahead = 3};
    struct leat_source *source = NULL;
    struct leat_loader *l = NULL;
    struct leat_batch *batch;
    int64_t numbers[N], samples = 0;
    int seen[N] = {0}, got;
    for (int64_t i = 0; i < N; i++)
        numbers[i] = i;
    struct leat_array array = {.dtype = LEAT_INT64, .dims = 1, .shape = {N}, .data = numbers};
    got = leat_source_memory(&array, 1, NULL, NULL, &source, &err);
    if (got == 0)
        got = leat_loader_new(source, &options, &l, &err);
    if (got == 0)
        got = leat_loader_start(l, 0, &err);
    while (got >= 0) {
        if (order == LEAT_ORDER_GIVEN && samples < N)
            got = leat_loader_submit(l, numbers + samples, BATCH, &err);
        if (got < 0 || (got = leat_loader_next(l, -1, &batch, &err)) <= 0)
            break;
        samples += batch->samples;
        for (int64_t i = 0; i < batch->samples; i++)
            seen[((int64_t *)batch->data[0])[i]]++;
        leat_batch_unref(batch);
    }
    for (int i = 0; i < N && got >= 0; i++)
        assert_int_equal(seen[i], 1);
    leat_loader_close(l);
    leat_source_unref(source);
    return got;
}

static void any_allocation_may_fail(void **state)
{
    static const enum leat_order orders[] = {LEAT_ORDER_FULL, LEAT_ORDER_GIVEN};
    for (int o = 0; o < 2; o++) {
        int refused = 0;
        mem_fail_at(0);
        assert_int_equal(whole_life(LEAT_ERROR_RAISE, orders[o]), 0);
        unsigned long allocations = mem_fail_at(0);
        assert_in_range(allocations, 5, 100);
        for (unsigned long n = 1; n <= allocations; n++) {
            mem_fail_at(n);
            err.text[0] = 0;
            int got = whole_life(LEAT_ERROR_RAISE, orders[o]);
            refused += got < 0;
            assert_true(got == 0 || (got == -ENOMEM && *err.text));
        }
        mem_fail_at(0);
        assert_in_range(refused, 1, allocations);
    }
}

/* A bad sample that could not be listed must not be delivered. */
static void bad_samples_are_always_listed(void **state)
{
    for (unsigned long n = 1; n < 60; n++) {
        struct faulty_source *f = faulty(N, is_bad);
        struct leat_loader *l =
            load(&f->base, (struct leat_loader_options){
                               .batch_size = BATCH, .threads = 2, .on_error = LEAT_ERROR_SKIP});
        struct leat_batch *batch;
        int got;
        mem_fail_at(n);
        must(leat_loader_start(l, 0, &err));
        while ((got = leat_loader_next(l, -1, &batch, &err)) != 0) {
            if (got < 0) {
                assert_int_equal(got, -ENOMEM);
                continue;
            }
            for (int64_t i = 0; i < batch->samples; i++) {
                assert_false(is_bad(batch->indices[i]));
                assert_int_equal(((int64_t *)batch->data[0])[i], batch->indices[i]);
            }
            leat_batch_unref(batch);
        }
        mem_fail_at(0);
        struct leat_loader_stats stats;
        leat_loader_stats(l, &stats);
        assert_true(stats.errors <= 10);
        leat_loader_close(l);
        leat_source_unref(&f->base);
    }
}

/* No allocation a batch after the first epoch. */
static void later_epochs_allocate_nothing(void **state)
{
    struct leat_source *source = numbered(5000);
    struct leat_loader *l = load(
        source,
        (struct leat_loader_options){.batch_size = 50, .order = LEAT_ORDER_FULL, .threads = 2});
    unsigned long first = 0;
    for (uint64_t epoch = 0; epoch < 12; epoch++) {
        struct leat_batch *batch, *before = NULL;
        must(leat_loader_start(l, epoch, &err));
        while ((batch = next(l))) {
            leat_batch_unref(
                before); /* as Python does: the old one goes when the new one is there */
            before = batch;
        }
        leat_batch_unref(before);
        unsigned long made = mem_fail_at(0);
        if (epoch > 1) /* of the second: the order in which slots came back may ask for one more */
            assert_int_equal(made, 0);
        first += made;
    }
    assert_true(first > 0);
    leat_loader_close(l);
    leat_source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(bad_samples_are_always_listed),
        cmocka_unit_test(later_epochs_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
