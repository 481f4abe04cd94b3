/* test_rate.c: the rate from arrival times of batches, and whether it is precise enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tune/rate.h"

#include <errno.h>
#include <math.h>

/* Adds rounds of `group` batches that arrive together, `period_s` apart, from `start_s`. */
static void add_rounds(struct rate *rate, int group, int rounds, double start_s, double period_s)
{
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < group; i++)
            assert_int_equal(rate_add(rate, start_s + r * period_s + i * 1e-4), 0);
}

static void the_start_of_workers_is_left_out(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 4);
    add_rounds(&rate, 4, 6, 3.0, 0.1);
    rate_estimate(&rate, &e);
    assert_float_equal(e.batches_per_s, 40, 1e-3);
    assert_float_equal(e.first_s, 3.0, 1e-9);
    assert_float_equal(e.round_s, 3.0003, 1e-9);
    assert_float_equal(e.window_s, 0.5, 1e-9);
    assert_int_equal(e.blocks, 5);
    assert_true(e.half_ratio < 1e-6);
    rate_done(&rate);
}

/* Workers that start one after the other lengthen only the first round. */
static void a_slow_start_does_not_lower_the_rate(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 4);
    for (int i = 0; i < 4; i++)
        rate_add(&rate, 1 + 0.5 * i);
    add_rounds(&rate, 4, 6, 2.6, 0.1);
    rate_estimate(&rate, &e);
    assert_float_equal(e.batches_per_s, 40, 0.1);
    assert_float_equal(e.first_s, 1, 1e-9);
    assert_float_equal(e.round_s, 2.5, 1e-9);
    rate_done(&rate);
}

static void an_incomplete_round_is_not_counted(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 4);
    add_rounds(&rate, 4, 3, 0, 0.1);
    rate_add(&rate, 0.3); /* the first of a fourth round */
    rate_estimate(&rate, &e);
    assert_float_equal(e.batches_per_s, 40, 1e-3);
    rate_done(&rate);
}

static void too_few_batches_give_no_rate(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 2);
    rate_estimate(&rate, &e);
    assert_true(isnan(e.batches_per_s) && isnan(e.first_s));
    add_rounds(&rate, 2, 1, 1, 1);
    rate_estimate(&rate, &e);
    assert_true(isnan(e.batches_per_s));
    assert_int_equal(rate_judge(&e, 0, 0), RATE_GO_ON);
    assert_int_equal(rate_add(&rate, 0.5), -EINVAL); /* before the last one */
    assert_int_equal(rate_add(&rate, NAN), -EINVAL);
    assert_int_equal(rate.count, 2);
    rate_done(&rate);
}

static void even_rounds_end_early(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 0);
    add_rounds(&rate, 1, 20, 0, 0.01);
    rate_estimate(&rate, &e);
    assert_int_equal(rate_judge(&e, 0, 1.5), RATE_GO_ON); /* a window of 0.19 s is too short */
    add_rounds(&rate, 1, 20, 0.2, 0.01);
    rate_estimate(&rate, &e);
    assert_int_equal(rate_judge(&e, 0, 1.5), RATE_ENOUGH);
    rate_done(&rate);
}

static void uneven_rounds_take_longer(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    double at = 0;
    rate_init(&rate, 0);
    for (int i = 0; i < 30; i++)
        rate_add(&rate, at += i % 3 ? 0.01 : 0.05);
    rate_estimate(&rate, &e);
    assert_true(e.window_s > 0.5);
    assert_true(e.half_ratio > 0.03);
    assert_int_equal(rate_judge(&e, 0, 1.5), RATE_GO_ON);
    assert_int_equal(rate_judge(&e, 0, 0.5), RATE_ENOUGH);
    rate_done(&rate);
}

static void slow_settings_end_early(void **state)
{
    struct rate rate;
    struct rate_estimate e;
    rate_init(&rate, 0);
    add_rounds(&rate, 1, 23, 0, 0.01); /* 100 per second, for 0.21 s */
    rate_estimate(&rate, &e);
    assert_int_equal(rate_judge(&e, 200, 1.5), RATE_TOO_SLOW);
    assert_int_equal(rate_judge(&e, 110, 1.5), RATE_GO_ON);
    rate_done(&rate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_start_of_workers_is_left_out),
        cmocka_unit_test(a_slow_start_does_not_lower_the_rate),
        cmocka_unit_test(an_incomplete_round_is_not_counted),
        cmocka_unit_test(too_few_batches_give_no_rate),
        cmocka_unit_test(even_rounds_end_early),
        cmocka_unit_test(uneven_rounds_take_longer),
        cmocka_unit_test(slow_settings_end_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
