/* test_loader_state.c: saved after any batch, resumed with any number of threads and ranks, an
 * epoch goes on exactly once over what is left. */
#include "samples.h"

enum { N = 1009, BATCH = 16 };

static struct leat_loader_options asked(int order, int threads, int rank, int world, int64_t batch)
{
    return (struct leat_loader_options){.batch_size = batch,
                                        .order = (enum leat_order)order,
                                        .seed = 77,
                                        .threads = threads,
                                        .rank = rank,
                                        .world_size = world,
                                        .block = 10,
                                        .mix = 3,
                                        .window = 50};
}

/* What all ranks of a world deliver until each has given `batches`, and rank 0's state then. */
static struct leat_loader_state deliver(struct leat_source *source, int order, int world,
                                        int threads, int64_t batches, int *seen)
{
    struct leat_loader_state state, other;
    for (int rank = 0; rank < world; rank++) {
        struct leat_loader *l = load(source, asked(order, threads, rank, world, BATCH));
        must(leat_loader_start(l, 5, &err));
        for (int64_t i = 0; i < batches; i++) {
            struct leat_batch *batch = next(l);
            if (!batch)
                break;
            check_rows(batch, seen);
            leat_batch_unref(batch);
        }
        must(leat_loader_state(l, rank ? &other : &state, &err));
        if (rank) /* one rank may save for all */
            assert_int_equal(other.position, state.position);
        leat_loader_close(l);
    }
    return state;
}

static void finish(struct leat_source *source, const struct leat_loader_state *state, int world,
                   int threads, int64_t batch_size, int *seen)
{
    for (int rank = 0; rank < world; rank++) {
        /* Another order and seed: the state's hold. */
        struct leat_loader_options options =
            asked(LEAT_ORDER_SEQUENTIAL, threads, rank, world, batch_size);
        options.seed = 1;
        struct leat_loader *l = load(source, options);
        struct leat_batch *batch;
        must(leat_loader_resume(l, state, &err));
        while ((batch = next(l))) {
            assert_int_equal(batch->epoch, 5);
            check_rows(batch, seen);
            leat_batch_unref(batch);
        }
        leat_loader_close(l);
    }
}

static void resumes_anywhere_exactly_once(void **state)
{
    static const int orders[] = {LEAT_ORDER_FULL, LEAT_ORDER_QUASI, LEAT_ORDER_WINDOW};
    static const int threads[] = {1, 2, 4};
    struct leat_source *source = numbered(N);
    int cases = 0;
    for (int before = 1; before <= 3; before++)
        for (int after = 1; after <= 3; after++) {
            int64_t steps = N / (BATCH * before) + 1;
            for (int64_t batches = 0; batches <= steps; batches++, cases++) {
                static int seen[N];
                memset(seen, 0, sizeof seen);
                int order = orders[cases % 3];
                struct leat_loader_state s =
                    deliver(source, order, before, threads[cases % 3], batches, seen);
                finish(source, &s, after, threads[cases / 3 % 3], BATCH + cases % 5, seen);
                for (int i = 0; i < N; i++)
                    assert_int_equal(seen[i], 1);
            }
        }
    leat_source_unref(source);
}

/* The same ranks and batch size go on with the very batches that would have come. */
static void resumes_with_the_same_batches(void **state)
{
    struct leat_source *source = numbered(N);
    for (int64_t at = 0; at < N / BATCH + 1; at += 9) {
        struct leat_loader *a = load(source, asked(LEAT_ORDER_FULL, 2, 0, 1, BATCH));
        struct leat_loader *b = load(source, asked(LEAT_ORDER_FULL, 1, 0, 1, BATCH));
        struct leat_loader_state s;
        struct leat_batch *x, *y;
        must(leat_loader_start(a, 3, &err));
        for (int64_t i = 0; i < at; i++)
            leat_batch_unref(next(a));
        must(leat_loader_state(a, &s, &err));
        must(leat_loader_resume(b, &s, &err));
        while ((x = next(a))) {
            assert_non_null(y = next(b));
            assert_int_equal(x->samples, y->samples);
            assert_memory_equal(x->indices, y->indices, (size_t)x->samples * 8);
            leat_batch_unref(x);
            leat_batch_unref(y);
        }
        assert_null(next(b));
        /* The next epoch of the resumed one is that of the other. */
        must(leat_loader_start(a, 4, &err));
        must(leat_loader_start(b, 4, &err));
        x = next(a), y = next(b);
        assert_memory_equal(x->indices, y->indices, (size_t)x->samples * 8);
        leat_batch_unref(x);
        leat_batch_unref(y);
        leat_loader_close(a);
        leat_loader_close(b);
    }
    leat_source_unref(source);
}

/* Saved, resumed and saved again, with another world each time. */
static void resumes_again_and_again(void **state)
{
    static int seen[N];
    struct leat_source *source = numbered(N);
    struct leat_loader_state s;
    memset(seen, 0, sizeof seen);
    s = deliver(source, LEAT_ORDER_FULL, 2, 2, 5, seen);
    for (int world = 3; world >= 1; world--) {
        struct leat_loader_state later = s;
        for (int rank = 0; rank < world; rank++) {
            struct leat_loader *l = load(source, asked(LEAT_ORDER_FULL, 2, rank, world, BATCH));
            must(leat_loader_resume(l, &s, &err));
            for (int i = 0; i < 4; i++) {
                struct leat_batch *batch = next(l);
                check_rows(batch, seen);
                leat_batch_unref(batch);
            }
            must(leat_loader_state(l, &later, &err));
            leat_loader_close(l);
        }
        s = later;
    }
    finish(source, &s, 2, 1, 33, seen);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    leat_source_unref(source);
}

static void wrong_states_are_refused(void **state)
{
    struct leat_source *source = numbered(N);
    struct leat_loader *l = load(source, asked(LEAT_ORDER_FULL, 1, 0, 1, BATCH));
    struct leat_loader_state good, bad;
    must(leat_loader_start(l, 0, &err));
    must(leat_loader_state(l, &good, &err));
    assert_true(sizeof good <= 256); /* small, and of one size */
    bad = good, bad.version = 9;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_VERSION);
    bad = good, bad.samples = 12;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_USAGE);
    bad = good, bad.position = N + 1;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_CORRUPT);
    bad = good, bad.position = -1;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_CORRUPT);
    bad = good, bad.window = 0;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_CORRUPT);
    bad = good, bad.order = LEAT_ORDER_GIVEN;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_USAGE);
    bad = good, bad.order = 1000;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_USAGE);
    leat_loader_close(l);
    leat_source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_anywhere_exactly_once),
        cmocka_unit_test(resumes_with_the_same_batches),
        cmocka_unit_test(resumes_again_and_again),
        cmocka_unit_test(wrong_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
