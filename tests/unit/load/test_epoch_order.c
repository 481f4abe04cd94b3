/* test_epoch_order.c: every order visits every sample once; ranks share them without overlap; any
 * part of the sequence can be computed alone; what remains after a step is a range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "load/epoch_order.h"

#include <stdlib.h>
#include <string.h>

static const enum leat_order orders[] = {LEAT_ORDER_SEQUENTIAL, LEAT_ORDER_FULL, LEAT_ORDER_QUASI,
                                         LEAT_ORDER_WINDOW};
#define ORDERS (sizeof orders / sizeof *orders)

static void check_once_each(const int64_t *indices, int64_t count)
{
    char *seen = calloc((size_t)count + 1, 1);
    for (int64_t i = 0; i < count; i++) {
        assert_in_range(indices[i], 0, count - 1);
        assert_int_equal(seen[indices[i]]++, 0);
    }
    free(seen);
}

static void every_order_visits_each_once(void **state)
{
    int64_t *indices = malloc(5000 * sizeof *indices);
    for (size_t o = 0; o < ORDERS; o++)
        for (int64_t n = 0; n < 5000; n += n < 70 ? 1 : 391)
            for (int64_t size = 1; size < 200; size = size * 3 + 1)
                for (int64_t mix = 1; mix < 9; mix += 3) {
                    struct epoch_order s;
                    epoch_order_init(&s, orders[o], n, 11, 3, size, mix, size);
                    epoch_order_fill(&s, 0, (size_t)n, indices);
                    check_once_each(indices, n);
                }
    free(indices);
}

static void any_cut_equals_the_whole(void **state)
{
    enum { N = 2011 };
    int64_t whole[N], part[N];
    for (size_t o = 0; o < ORDERS; o++) {
        struct epoch_order s;
        epoch_order_init(&s, orders[o], N, 5, 1, 37, 4, 100);
        epoch_order_fill(&s, 0, N, whole);
        for (int64_t first = 0; first < N; first += 53)
            for (int64_t count = 1; first + count <= N; count = count * 2 + 1) {
                epoch_order_fill(&s, first, (size_t)count, part);
                assert_memory_equal(part, whole + first, (size_t)count * sizeof *part);
            }
    }
}

static void seeds_and_epochs_differ(void **state)
{
    enum { N = 1000 };
    int64_t a[N], b[N];
    for (size_t o = 1; o < ORDERS; o++)
        for (int change = 0; change < 2; change++) {
            struct epoch_order s;
            epoch_order_init(&s, orders[o], N, 5, 1, 37, 4, 100);
            epoch_order_fill(&s, 0, N, a);
            epoch_order_init(&s, orders[o], N, 5 + (uint64_t)change, 2 - (uint64_t)change, 37, 4,
                             100);
            epoch_order_fill(&s, 0, N, b);
            assert_memory_not_equal(a, b, sizeof a);
        }
}

/* A window stays within itself; a group of QUASI reads from `mix` blocks only. */
static void locality_is_kept(void **state)
{
    enum { N = 6400 };
    static int64_t indices[N];
    struct epoch_order s;
    epoch_order_init(&s, LEAT_ORDER_WINDOW, N, 1, 1, 1, 1, 100);
    epoch_order_fill(&s, 0, N, indices);
    int moved = 0;
    for (int64_t i = 0; i < N; i++) {
        assert_int_equal(indices[i] / 100, i / 100);
        moved += indices[i] != i;
    }
    assert_true(moved > N * 9 / 10);
    epoch_order_init(&s, LEAT_ORDER_QUASI, N, 1, 1, 50, 4, 1);
    epoch_order_fill(&s, 0, N, indices);
    int first_blocks = 0;
    for (int64_t group = 0; group < N / 200; group++) {
        int blocks[N / 50] = {0}, different = 0;
        for (int64_t i = group * 200; i < (group + 1) * 200; i++)
            different += blocks[indices[i] / 50]++ == 0;
        assert_int_equal(different, 4);
        first_blocks += blocks[group * 4] != 0;
    }
    assert_true(first_blocks < N / 200 / 2); /* the blocks themselves are shuffled */
}

static void check_share(int64_t n, int64_t first, int64_t batch, int64_t world, int drop_last)
{
    char *taken = calloc((size_t)n + 1, 1);
    int64_t total = 0, batches = -1;
    for (int64_t rank = 0; rank < world; rank++) {
        struct share s;
        share_init(&s, n, first, batch, rank, world, drop_last);
        int64_t place = 0, sum = 0;
        for (int64_t b = 0; b < share_batches(&s); b++) {
            int64_t samples = share_batch_samples(&s, b);
            assert_in_range(samples, 1, batch);
            if (drop_last)
                assert_int_equal(samples, batch);
            sum += samples;
            for (int64_t i = 0; i < samples; i++, place++) {
                int64_t position = share_position(&s, place);
                assert_in_range(position, first, n - 1);
                assert_int_equal(taken[position]++, 0);
                assert_int_equal(position, share_position(&s, b * batch) + i);
                assert_true(position < share_delivered(&s, b + 1));
                assert_true(position >= share_delivered(&s, b));
            }
        }
        assert_int_equal(sum, s.samples);
        total += sum;
        if (batches >= 0 && (n - first) % (batch * world) >= world)
            assert_int_equal(share_batches(&s), batches); /* all ranks make the same steps */
        batches = share_batches(&s);
    }
    assert_int_equal(total,
                     drop_last ? (n - first) / (batch * world) * (batch * world) : n - first);
    free(taken);
}

static void ranks_are_disjoint_and_complete(void **state)
{
    for (int64_t n = 0; n < 130; n += n < 20 ? 1 : 17)
        for (int64_t first = 0; first <= n; first += 7)
            for (int64_t batch = 1; batch < 40; batch = batch * 2 + 1)
                for (int64_t world = 1; world < 6; world++)
                    for (int drop_last = 0; drop_last < 2; drop_last++)
                        check_share(n, first, batch, world, drop_last);
}

static void enormous_batches_do_not_overflow(void **state)
{
    struct share s;
    share_init(&s, 10, 0, INT64_MAX / 2, 1, 1000, 0);
    assert_int_equal(share_batches(&s), 1);
    assert_int_equal(share_batch_samples(&s, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_visits_each_once),
        cmocka_unit_test(any_cut_equals_the_whole),
        cmocka_unit_test(seeds_and_epochs_differ),
        cmocka_unit_test(locality_is_kept),
        cmocka_unit_test(ranks_are_disjoint_and_complete),
        cmocka_unit_test(enormous_batches_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
