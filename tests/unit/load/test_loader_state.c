/* test_loader_state.c: an epoch saved after any batch and resumed with any number of threads and
 * ranks delivers the rest exactly once. */
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

/* What all ranks of a world deliver in `batches` batches each, and rank 0's state then. */
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
        /* Another order and seed: those of the state are used. */
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
                static int before_it[N], seen[N];
                memset(before_it, 0, sizeof before_it);
                int order = orders[cases % 3];
                struct leat_loader_state s =
                    deliver(source, order, before, threads[cases / 3 % 3], batches, before_it);
                for (int t = 0; t < 3; t++) {
                    memcpy(seen, before_it, sizeof seen);
                    finish(source, &s, after, threads[t], BATCH + cases % 5, seen);
                    for (int i = 0; i < N; i++)
                        assert_int_equal(seen[i], 1);
                }
            }
        }
    leat_source_unref(source);
}

/* The same ranks and batch size continue with the same batches. */
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
        /* The next epoch of both is the same. */
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
static void resumes_repeatedly(void **state)
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

/* ---- bad samples that are skipped -------------------------------------------------------------
 */
static int is_bad_here(int64_t index)
{
    return index % 11 == 3;
}

static struct leat_loader *skipping(struct leat_source *source, int rank, int world, int64_t batch,
                                    int drop_last)
{
    struct leat_loader_options options = asked(LEAT_ORDER_FULL, 2, rank, world, batch);
    options.on_error = LEAT_ERROR_SKIP;
    options.drop_last = drop_last;
    return load(source, options);
}

static void take_some(struct leat_loader *l, int64_t batches, int *seen)
{
    struct leat_batch *batch;
    for (int64_t i = 0; i < batches && (batch = next(l)); i++) {
        const int64_t *number = batch->data[0];
        for (int64_t row = 0; row < batch->samples; row++) {
            assert_int_equal(number[row], batch->indices[row]);
            seen[number[row]]++;
        }
        leat_batch_unref(batch);
    }
}

static void all_good_ones_once(const int *seen)
{
    for (int i = 0; i < N; i++)
        if (seen[i] != !is_bad_here(i))
            fail_msg("sample %d came %d times", i, seen[i]);
}

/* A single rank that has skipped samples: whatever loader continues, what it took from the end does
 * not come again; also when that loader saves in its turn. */
static void a_single_rank_saves_what_it_skipped(void **state)
{
    struct leat_source *source = &faulty(N, is_bad_here)->base;
    for (int world = 1; world <= 3; world++)
        for (int64_t batches = 0; batches < N / BATCH + 2; batches += 7) {
            static int seen[N];
            struct leat_loader_state s;
            memset(seen, 0, sizeof seen);
            struct leat_loader *l = skipping(source, 0, 1, BATCH, 0);
            must(leat_loader_start(l, 5, &err));
            take_some(l, batches, seen);
            must(leat_loader_state(l, &s, &err));
            leat_loader_close(l);
            for (int rank = 0; rank < world; rank++) {
                struct leat_loader_state own;
                l = skipping(source, rank, world, BATCH + 5, 0);
                must(leat_loader_resume(l, &s, &err));
                take_some(l, 2, seen);
                must(leat_loader_state(l, &own, &err));
                leat_loader_close(l);
                l = skipping(source, rank, world, BATCH + 5, 0); /* each with its own */
                must(leat_loader_resume(l, &own, &err));
                take_some(l, N, seen);
                leat_loader_close(l);
            }
            all_good_ones_once(seen);
        }
    leat_source_unref(source);
}

/* No rank knows what the others took from the end: only the same ranks may continue. */
static void a_skipping_world_is_resumed_by_the_same_ranks(void **state)
{
    static int seen[N];
    struct leat_source *source = &faulty(N, is_bad_here)->base;
    struct leat_loader_state s[2];
    struct leat_loader *l;
    memset(seen, 0, sizeof seen);
    for (int rank = 0; rank < 2; rank++) {
        l = skipping(source, rank, 2, BATCH, 0);
        must(leat_loader_start(l, 5, &err));
        take_some(l, 11, seen);
        must(leat_loader_state(l, &s[rank], &err));
        assert_true(s[rank].spare > 0);
        leat_loader_close(l);
    }
    const struct {
        int rank, world, drop_last;
        int64_t batch;
    } others[] = {
        {1, 2, 0, BATCH    }, /* another rank's state */
        {0, 1, 0, BATCH    },
        {0, 3, 0, BATCH    },
        {0, 2, 0, BATCH + 1},
        {0, 2, 1, BATCH    }
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        l = skipping(source, others[i].rank, others[i].world, others[i].batch, others[i].drop_last);
        assert_int_equal(leat_loader_resume(l, &s[0], &err), -LEAT_E_USAGE);
        assert_non_null(strstr(err.text, "rank 0 of 2"));
        assert_non_null(strstr(err.text, "each rank with its own state"));
        leat_loader_close(l);
    }
    for (int rank = 0; rank < 2; rank++) {
        l = skipping(source, rank, 2, BATCH, 0);
        must(leat_loader_resume(l, &s[rank], &err));
        take_some(l, N, seen);
        must(leat_loader_state(l, &s[rank], &err));
        leat_loader_close(l);
    }
    all_good_ones_once(seen);
    l = skipping(source, 0, 1, BATCH, 0); /* nothing is left, so nothing can come twice */
    must(leat_loader_resume(l, &s[0], &err));
    assert_null(next(l));
    leat_loader_close(l);
    leat_source_unref(source);
}

/* With drop_last a single rank that has skipped may not change anything. */
static void a_dropped_tail_is_not_given_out_later(void **state)
{
    struct leat_source *source = &faulty(N, is_bad_here)->base;
    struct leat_loader_state s;
    struct leat_loader *l = skipping(source, 0, 1, BATCH, 1);
    static int seen[N];
    must(leat_loader_start(l, 5, &err));
    take_some(l, 9, seen);
    must(leat_loader_state(l, &s, &err));
    leat_loader_close(l);
    l = skipping(source, 0, 1, BATCH + 1, 1);
    assert_int_equal(leat_loader_resume(l, &s, &err), -LEAT_E_USAGE);
    leat_loader_close(l);
    l = skipping(source, 0, 1, BATCH, 1);
    must(leat_loader_resume(l, &s, &err));
    take_some(l, N, seen);
    leat_loader_close(l);
    for (int i = 0; i < N; i++)
        assert_true(seen[i] <= !is_bad_here(i));
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
    bad = good, bad.end = N + 1;
    assert_int_equal(leat_loader_resume(l, &bad, &err), -LEAT_E_CORRUPT);
    bad = good, bad.end = 10, bad.spare = 11;
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
        cmocka_unit_test(resumes_repeatedly),
        cmocka_unit_test(a_single_rank_saves_what_it_skipped),
        cmocka_unit_test(a_skipping_world_is_resumed_by_the_same_ranks),
        cmocka_unit_test(a_dropped_tail_is_not_given_out_later),
        cmocka_unit_test(wrong_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
