/* test_buckets.c: every sample once, no batch beyond its budget, little padding; ranks and states.
 */
#include "samples.h"

#include "base/mem.h"
#include "load/buckets.h"

#include <math.h>

#define MOST 20000

static int64_t lengths[MOST];

/* Lengths as of texts: log-normal, median 200 tokens. */
static void make_lengths(int64_t count, uint64_t key)
{
    for (int64_t i = 0; i < count; i++) {
        double u = ((double)(random_at(key, (uint64_t)i, 0) >> 11) + 1) / 9007199254740993.0;
        double v = (double)(random_at(key, (uint64_t)i, 1) >> 11) / 9007199254740992.0;
        double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
        lengths[i] = (int64_t)(200 * exp(0.9 * normal));
    }
}

static int64_t padded(const struct buckets_options *o, const int64_t *indices, int64_t samples)
{
    int64_t longest = 0, multiple = o->multiple ? o->multiple : 1;
    for (int64_t i = 0; i < samples; i++)
        longest = lengths[indices[i]] > longest ? lengths[indices[i]] : longest;
    return (longest + multiple - 1) / multiple * multiple * samples;
}

static void check_batch(const struct buckets_options *o, const int64_t *indices, int64_t samples)
{
    assert_true(samples > 0);
    assert_true(!o->batch_size || samples <= o->batch_size);
    assert_true(!o->max_tokens || padded(o, indices, samples) <= o->max_tokens ||
                (o->allow_long && samples == 1));
}

/* The remaining batches of all ranks of a world, counted in `seen`; returns the steps of the first
 * rank. */
static int64_t take_all(const struct buckets *b, const struct buckets_options *o, int64_t done,
                        int64_t world_size, int *seen)
{
    int64_t most = 0, least = INT64_MAX, last = 0;
    for (int64_t r = 0; r < world_size; r++) {
        struct buckets_rank rank = {.rank = r, .world_size = world_size, .done = done};
        int64_t steps = buckets_steps(b, &rank, o->drop_last);
        most = r == 0 ? steps : most;
        least = steps < least ? steps : least;
        assert_true(steps <= most); /* only the last ranks may have fewer */
        assert_true(!steps || b->largest > 0);
        for (int64_t s = 0; s < steps; s++) {
            const int64_t *indices;
            int64_t samples = buckets_part(b, &rank, s, &indices);
            check_batch(o, indices, samples);
            assert_true(samples <= b->largest);
            for (int64_t i = 0; i < samples; i++)
                seen[indices[i]]++;
            last += s == most - 1 ? samples : 0;
        }
    }
    if (least != most) /* the tail has fewer samples than there are ranks: one each */
        assert_true(!o->drop_last && most - least == 1 && last < world_size);
    return most;
}

/* batch_size, max_tokens, window, multiple, shuffle, drop_last, allow_long, seed */
static const struct buckets_options kinds[] = {
    {7,      0,    0,   0,  1, 0, 0, 3},
    {7,      0,    20,  8,  1, 0, 0, 0},
    {1,      0,    0,   0,  1, 0, 0, 0},
    {100000, 0,    0,   0,  1, 0, 0, 0},
    {64,     0,    1,   0,  0, 0, 0, 0},
    {0,      8192, 0,   0,  1, 0, 1, 0},
    {0,      8192, 100, 64, 1, 0, 1, 0},
    {0,      300,  0,   0,  0, 0, 1, 0},
    {16,     8192, 0,   0,  1, 0, 1, 0},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void every_sample_once_for_any_ranks(void **state)
{
    static const int64_t counts[] = {0, 1, 2, 6, 7, 8, 23, 500, 1031};
    static const int64_t worlds[] = {1, 2, 3, 8, 50};
    static int seen[MOST];
    make_lengths(MOST, 1);
    lengths[0] = lengths[5] = 0;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            struct buckets b;
            must(buckets_init(&b, lengths, counts[n], &kinds[k], n, &err));
            assert_int_equal(b.samples, counts[n]);
            for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
                memset(seen, 0, sizeof seen);
                take_all(&b, &kinds[k], 0, worlds[w], seen);
                for (int64_t i = 0; i < MOST; i++)
                    assert_int_equal(seen[i], i < counts[n]);
            }
            buckets_done(&b);
        }
}

static void without_the_tail_all_ranks_have_full_batches(void **state)
{
    static int seen[MOST];
    make_lengths(1031, 1);
    for (size_t k = 0; k < KINDS; k++) {
        struct buckets_options o = kinds[k];
        struct buckets b;
        o.drop_last = 1;
        must(buckets_init(&b, lengths, 1031, &o, 1, &err));
        for (int64_t world = 1; world < 5; world++) {
            int64_t had = 0, steps;
            memset(seen, 0, sizeof seen);
            steps = take_all(&b, &o, 0, world, seen);
            assert_int_equal(steps, b.batches / world);
            for (int64_t i = 0; i < 1031; i++)
                assert_true(seen[i] <= 1), had += seen[i];
            if (!o.max_tokens)
                assert_int_equal(had, steps * world * o.batch_size);
        }
        buckets_done(&b);
    }
}

static int64_t waste(const struct buckets *b, const struct buckets_options *o)
{
    int64_t tokens = 0;
    struct buckets_rank all = {.world_size = 1};
    for (int64_t s = 0; s < b->batches; s++) {
        const int64_t *indices;
        int64_t samples = buckets_part(b, &all, s, &indices);
        tokens += padded(o, indices, samples);
        for (int64_t i = 0; i < samples; i++)
            tokens -= lengths[indices[i]];
    }
    return tokens;
}

/* A window of one batch is random batching: the same order, cut without sorting. */
static void padding_is_less_than_half(void **state)
{
    struct buckets_options sorted = {.batch_size = 32, .shuffle = 1, .seed = 4}, random = sorted;
    struct buckets_options tokens = {.max_tokens = 8192, .shuffle = 1, .allow_long = 1};
    random.window = 32;
    make_lengths(MOST, 2);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        struct buckets b, plain, budget;
        must(buckets_init(&plain, lengths, MOST, &random, epoch, &err));
        must(buckets_init(&b, lengths, MOST, &sorted, epoch, &err));
        must(buckets_init(&budget, lengths, MOST, &tokens, epoch, &err));
        assert_true(waste(&b, &sorted) * 2 < waste(&plain, &random));
        assert_true(waste(&budget, &tokens) * 2 < waste(&plain, &random));
        /* The budget is used to 7/8, over all batches but one per window. */
        int64_t windows = (MOST + BUCKETS_WINDOW - 1) / BUCKETS_WINDOW, sum = 0;
        for (int64_t i = 0; i < MOST; i++)
            sum += lengths[i];
        assert_true((budget.batches - windows) * tokens.max_tokens / 8 * 7 <
                    sum + waste(&budget, &tokens));
        buckets_done(&b);
        buckets_done(&plain);
        buckets_done(&budget);
    }
}

/* Any number of ranks continues from a state after any number of steps of any other. */
static void any_ranks_continue_from_a_state(void **state)
{
    static int seen[600], before[600];
    make_lengths(600, 3);
    for (size_t k = 0; k < KINDS; k++) {
        struct buckets b;
        must(buckets_init(&b, lengths, 600, &kinds[k], 5, &err));
        for (int64_t world = 1; world < 4; world++) {
            memset(before, 0, sizeof before);
            struct buckets_rank zero = {.world_size = world};
            int64_t steps = buckets_steps(&b, &zero, 0);
            for (int64_t s = 0; s <= steps; s++) {
                int64_t done = buckets_done_after(&b, &zero, s);
                for (int64_t other = 1; other < 4; other++) {
                    memcpy(seen, before, sizeof seen);
                    take_all(&b, &kinds[k], done, other, seen);
                    for (int i = 0; i < 600; i++)
                        assert_int_equal(seen[i], 1);
                }
                for (int64_t r = 0; r < world; r++) { /* the step itself */
                    struct buckets_rank rank = {.rank = r, .world_size = world};
                    const int64_t *indices;
                    if (s >= buckets_steps(&b, &rank, 0))
                        continue;
                    int64_t samples = buckets_part(&b, &rank, s, &indices);
                    for (int64_t i = 0; i < samples; i++)
                        before[indices[i]]++;
                }
            }
            assert_int_equal(buckets_done_after(&b, &zero, steps), b.batches);
        }
        buckets_done(&b);
    }
}

/* The samples of an epoch, one after the other. */
static void sequence_of(const struct buckets_options *o, int64_t count, uint64_t epoch,
                        int64_t *ret_indices)
{
    struct buckets b;
    struct buckets_rank all = {.world_size = 1};
    must(buckets_init(&b, lengths, count, o, epoch, &err));
    for (int64_t s = 0; s < b.batches; s++) {
        const int64_t *indices;
        int64_t samples = buckets_part(&b, &all, s, &indices);
        memcpy(ret_indices, indices, (size_t)samples * sizeof *indices);
        ret_indices += samples;
    }
    buckets_done(&b);
}

static void seed_and_epoch_decide_alone(void **state)
{
    static int64_t one[1000], other[1000];
    struct buckets_options o = {.batch_size = 8, .shuffle = 1, .seed = 1}, another = o;
    make_lengths(1000, 4);
    sequence_of(&o, 1000, 2, one);
    sequence_of(&o, 1000, 2, other);
    assert_memory_equal(one, other, sizeof one);
    sequence_of(&o, 1000, 3, other);
    assert_memory_not_equal(one, other, sizeof one);
    another.seed = 2;
    sequence_of(&another, 1000, 2, other);
    assert_memory_not_equal(one, other, sizeof one);
    /* Without shuffle: the data's order, sorted window by window, and stable. */
    struct buckets_options plain = {.batch_size = 4, .window = 8};
    for (int i = 0; i < 20; i++)
        lengths[i] = i / 2 % 2;
    static const int64_t expected[] = {2,  3,  6, 7, 0,  1,  4,  5,  10, 11,
                                       14, 15, 8, 9, 12, 13, 18, 19, 16, 17};
    sequence_of(&plain, 20, 7, one);
    assert_memory_equal(one, expected, sizeof expected);
}

/* With one window of samples of distinct lengths each epoch has the same batches: only their
 * sequence tells epochs and seeds apart. */
static void the_sequence_is_of_the_epoch(void **state)
{
    static int64_t one[1000], other[1000];
    struct buckets_options o = {.batch_size = 8, .window = 1000, .shuffle = 1, .seed = 1};
    for (int i = 0; i < 1000; i++)
        lengths[i] = i;
    sequence_of(&o, 1000, 2, one);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(one[i] / 8, one[i / 8 * 8] / 8); /* as cut, whatever the seed */
    sequence_of(&o, 1000, 3, other);
    assert_memory_not_equal(one, other, sizeof one);
    o.seed = 2;
    sequence_of(&o, 1000, 2, other);
    assert_memory_not_equal(one, other, sizeof one);
}

/* Batches of long samples come anywhere in the epoch, and similar ones are not neighbours. */
static void the_sequence_is_shuffled(void **state)
{
    static int64_t one[4096];
    struct buckets_options o = {.batch_size = 8, .shuffle = 1, .seed = 1, .window = 4096};
    for (int i = 0; i < 4096; i++)
        lengths[i] = i < 2048;
    sequence_of(&o, 4096, 0, one);
    int64_t early = 0, neighbours = 0;
    for (int i = 0; i < 2048; i++)
        early += one[i] < 2048; /* half of the long ones come in the first half */
    for (int i = 1; i < 4096; i++)
        neighbours += one[i] == one[i - 1] + 1;
    assert_in_range(early, 800, 1248);
    assert_in_range(neighbours, 0, 16);
}

static void impossible_options_are_refused(void **state)
{
    struct buckets b;
    make_lengths(100, 5);
    lengths[17] = 9000;
    struct buckets_options o = {.max_tokens = 8192, .shuffle = 1};
    assert_int_equal(buckets_init(&b, lengths, 100, &o, 0, &err), -LEAT_E_USAGE);
    assert_non_null(strstr(err.text, "Sample 17 has 9000 tokens"));
    lengths[17] = 8190, o.multiple = 100; /* 8200 when padded */
    assert_int_equal(buckets_init(&b, lengths, 100, &o, 0, &err), -LEAT_E_USAGE);
    lengths[17] = -1;
    assert_int_equal(buckets_init(&b, lengths, 100, &o, 0, &err), -LEAT_E_USAGE);
    lengths[17] = INT64_MAX, o.allow_long = 1;
    assert_int_equal(buckets_init(&b, lengths, 100, &o, 0, &err), -LEAT_E_USAGE);
    lengths[17] = 1;
    static const int64_t wrong[][4] = {
        {0,  0,  0,  0        },
        {-1, 0,  0,  0        },
        {1,  -1, 0,  0        },
        {1,  0,  -1, 0        },
        {1,  0,  0,  -1       },
        {1,  0,  0,  INT64_MAX},
    };
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        struct buckets_options bad = {.batch_size = wrong[w][0],
                                      .max_tokens = wrong[w][1],
                                      .window = wrong[w][2],
                                      .multiple = wrong[w][3]};
        assert_int_equal(buckets_init(&b, lengths, 100, &bad, 0, &err), -LEAT_E_USAGE);
    }
    for (unsigned long n = 1;; n++) {
        mem_fail_at(n);
        int result = buckets_init(&b, lengths, 100, &kinds[0], 0, &err);
        mem_fail_at(0);
        if (!result)
            break;
        assert_int_equal(result, -ENOMEM);
    }
    buckets_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_for_any_ranks),
        cmocka_unit_test(without_the_tail_all_ranks_have_full_batches),
        cmocka_unit_test(padding_is_less_than_half),
        cmocka_unit_test(any_ranks_continue_from_a_state),
        cmocka_unit_test(seed_and_epoch_decide_alone),
        cmocka_unit_test(the_sequence_is_of_the_epoch),
        cmocka_unit_test(the_sequence_is_shuffled),
        cmocka_unit_test(impossible_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
