/* test_what_if.c: the model of a loader in cases whose answer can be computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "predict/what_if.h"

#include <math.h>

/* A loader whose batches all take the same time. */
static struct what_if steady(double make_ms, double rest_ms, int workers)
{
    struct what_if w = {
        .rest_ms = rest_ms, .batches_per_step = 1, .workers = workers, .prefetch = 2, .cores = 64};
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w.make_ms[i] = make_ms;
    return w;
}

static void near(double value, double expected, double ratio)
{
    if (!(fabs(value / expected - 1) <= ratio))
        fail_msg("%g, expected %g", value, expected);
}

static void test_slowest_station_decides(void **state)
{
    struct what_if w = steady(40, 10, 0);
    near(what_if_step_ms(&w), 50, 1e-9); /* nothing overlaps */
    w = steady(40, 10, 1);
    near(what_if_step_ms(&w), 40, 0.001);
    w = steady(40, 10, 2);
    near(what_if_step_ms(&w), 20, 0.001);
    w = steady(40, 10, 8);
    near(what_if_step_ms(&w), 10, 0.001); /* the rest of the step */
    w.hand_over_ms = 3;
    near(what_if_step_ms(&w), 13, 0.001); /* plus the hand-over */
    w.hand_over_ms = 0;
    w.pin_ms = 12;
    near(what_if_step_ms(&w), 12, 0.001); /* the pin thread works in parallel */
}

static void test_cores_are_finite(void **state)
{
    struct what_if w = steady(40, 10, 8);
    w.make_cpu_ms = 40;
    w.rest_cpu_ms = 10;
    w.cores = 2;
    near(what_if_step_ms(&w), 25, 0.01);
    w.make_cpu_ms = 4; /* the rest of making a batch waits, which needs no core */
    near(what_if_step_ms(&w), 10, 0.001);
}

/* Threads of other programs get the same share of a core as threads of the run. */
static void test_shared_cores(void **state)
{
    struct what_if w = steady(20, 10, 0);
    w.make_cpu_ms = 20;
    w.rest_cpu_ms = 10;
    w.cores = 1;
    w.foreign = 1;
    near(what_if_step_ms(&w), 60, 1e-9); /* the other thread gets half of the core */
    w.cores = 2;
    near(what_if_step_ms(&w), 30, 1e-9); /* a core for each */
    w = steady(40, 0, 1);
    w.make_cpu_ms = 40;
    w.cores = 1;
    w.foreign = 3;
    near(what_if_step_ms(&w), 160, 0.001);
    w.make_cpu_ms = 0; /* waiting needs no core */
    near(what_if_step_ms(&w), 40, 0.001);
}

/* Workers without a free core take one from the training, and its step gets longer: batches of 20
 * and a step of 12, with two workers, take 12 per step on three cores and 16 on two. */
static void test_workers_slow_the_step(void **state)
{
    struct what_if w = steady(20, 12, 2);
    near(what_if_step_ms(&w), 12, 0.001);
    w.make_cpu_ms = 20;
    w.rest_cpu_ms = 12;
    w.cores = 2;
    near(what_if_step_ms(&w), 16, 0.01);
    w.cores = 3;
    near(what_if_step_ms(&w), 12, 0.001);
}

/* The worker that the training wakes stays on its core: the 12 of the step take 24, in which the
 * other core makes more batches than are needed. A step that waits shares no core. */
static void test_workers_on_the_core_of_the_step(void **state)
{
    struct what_if w = steady(20, 12, 2);
    w.make_cpu_ms = 20;
    w.rest_cpu_ms = 12;
    w.cores = 2;
    w.crowds = 1;
    near(what_if_step_ms(&w), 24, 0.01);
    w.make_cpu_ms = 6; /* the rest of making a batch comes first, and waits */
    near(what_if_step_ms(&w), 12, 0.001);
    w = steady(4, 12, 2);
    w.make_cpu_ms = 4;
    w.rest_cpu_ms = 12;
    w.cores = 2;
    w.crowds = 1;
    near(what_if_step_ms(&w), 16, 0.01); /* 8 while the batch is made, 8 alone */
    w.rest_cpu_ms = 0;
    near(what_if_step_ms(&w), 12, 0.001);
}

/* Workloads like those of bench/what_if.py, in round figures, on two cores with two workers.
 * Whether the training shares its core is not known. That prevents a prediction (cause.h:
 * RANGE_MOST) only where both the step and the workers compute. */
static void test_doubt_of_a_busy_step(void **state)
{
    static const struct {
        double make_ms, make_cpu_ms, rest_ms, rest_cpu_ms;
        int doubtful;
    } works[] = {
        {21, 1,  16.5, 2,  0}, /* short waits */
        {20, 20, 21,   2,  0}, /* pure Python */
        {25, 25, 21,   3,  0}, /* the same on slower cores */
        {40, 40, 9,    2,  0}, /* more of it */
        {15, 15, 21,   3,  0}, /* numpy and torch */
        {80, 30, 25,   25, 0}, /* images */
        {60, 20, 20,   40, 0}, /* with a step in two threads */
        {20, 20, 13,   13, 1}, /* busy step */
    };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        struct what_if w = steady(works[i].make_ms, works[i].rest_ms, 2);
        w.make_cpu_ms = works[i].make_cpu_ms;
        w.rest_cpu_ms = works[i].rest_cpu_ms;
        w.hand_over_ms = 1.1;
        w.cores = 2;
        double alone = what_if_step_ms(&w);
        w.crowds = 1;
        double ratio = what_if_step_ms(&w) / alone;
        if (works[i].doubtful ? ratio < 1.4 : ratio > 1.2)
            fail_msg("workload %zu: %g", i, ratio);
    }
}

/* A step that computes in two threads wants two cores. */
static void test_threads_of_the_step(void **state)
{
    struct what_if w = steady(10, 10, 1);
    w.make_cpu_ms = 10;
    w.rest_cpu_ms = 20;
    w.cores = 2;
    near(what_if_step_ms(&w), 15, 0.01);
    w.cores = 3;
    near(what_if_step_ms(&w), 10, 0.001);
}

/* If all batches take the same time, two workers hide 18 ms behind steps of 10 ms. If the times
 * vary they do not, and less so with fewer batches ahead. */
static void test_spread_costs(void **state)
{
    struct what_if even = steady(18, 10, 2), spread = even;
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        spread.make_ms[i] = i % 4 == 0 ? 54 : 6; /* the same mean */
    near(what_if_make_ms(&spread), 18, 1e-9);
    double with = what_if_step_ms(&spread);
    near(what_if_step_ms(&even), 10, 0.001);
    assert_true(with > 11);
    spread.prefetch = 16;
    double ahead = what_if_step_ms(&spread);
    assert_true(ahead < 0.97 * with);
    assert_true(ahead >= 10);
    assert_true(what_if_step_ms(&spread) == ahead); /* the same input gives the same answer */
}

/* A worker that makes the next batch answers late; an idle worker does not, nor one that has made
 * that batch meanwhile. */
static void test_busy_workers_hand_over_late(void **state)
{
    struct what_if w = steady(18, 10, 1);
    w.busy_extra_ms = 12;
    near(what_if_step_ms(&w), 18, 0.001); /* 8 late and 10 of rest hide the 18 */
    w.busy_extra_ms = 1000;
    near(what_if_step_ms(&w), 18, 0.001);
    w = steady(18, 10, 2);
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w.make_ms[i] = i % 4 == 0 ? 54 : 6;
    double prompt = what_if_step_ms(&w);
    w.busy_extra_ms = 12;
    assert_true(what_if_step_ms(&w) > 1.05 * prompt);
    w = steady(5, 30, 4);
    w.busy_extra_ms = 12;
    near(what_if_step_ms(&w), 30, 0.001);
}

/* NaN gives NaN; the simulation does not run forever. */
static void test_unknown_times(void **state)
{
    struct what_if w = steady(10, NAN, 2);
    assert_true(isnan(what_if_step_ms(&w)));
    w = steady(NAN, 10, 2);
    assert_true(isnan(what_if_step_ms(&w)));
}

/* An epoch of 10 batches begins with the making of one: 40 ms once, then 10 per step. */
static void test_epochs_begin_empty(void **state)
{
    struct what_if w = steady(40, 10, 8);
    w.epoch_batches = 10;
    near(what_if_step_ms(&w), (40 + 10 * 10) / 10.0, 0.02);
    w.epoch_batches = 1000000; /* longer than the simulation: no start inside */
    near(what_if_step_ms(&w), 10, 0.001);
}

static void test_accumulation(void **state)
{
    struct what_if w = steady(40, 10, 2);
    w.batches_per_step = 4;
    near(what_if_step_ms(&w), 80, 0.001);
    w.workers = 0;
    near(what_if_step_ms(&w), 170, 1e-9);
}

static void test_fewest_workers_that_do(void **state)
{
    struct what_if w = steady(58, 12, 2);
    assert_int_equal(what_if_workers(&w, 16, 0), 5);
    assert_int_equal(what_if_workers(&w, 3, 0), 3);
    w.cores = 2;
    w.make_cpu_ms = 58;
    w.rest_cpu_ms = 12;
    assert_int_equal(what_if_workers(&w, 16, 0), 2); /* 35 ms by the cores, 29 by two workers */
}

/* For a device that works 28 ms per step two workers are enough. */
static void test_no_more_workers_than_the_device_takes(void **state)
{
    struct what_if w = steady(54, 12, 2);
    assert_int_equal(what_if_workers(&w, 16, 28), 2);
    assert_int_equal(what_if_workers(&w, 16, 18.1), 3);
    assert_int_equal(what_if_workers(&w, 16, 5), 5); /* the host itself takes longer */
    assert_int_equal(what_if_workers(&w, 16, 90), 1);
    w.batches_per_step = 2; /* 28 is the work of a step, which wants two batches */
    w.rest_ms = 24;
    assert_int_equal(what_if_workers(&w, 16, 28), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slowest_station_decides),
        cmocka_unit_test(test_cores_are_finite),
        cmocka_unit_test(test_spread_costs),
        cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_workers_slow_the_step),
        cmocka_unit_test(test_workers_on_the_core_of_the_step),
        cmocka_unit_test(test_doubt_of_a_busy_step),
        cmocka_unit_test(test_threads_of_the_step),
        cmocka_unit_test(test_busy_workers_hand_over_late),
        cmocka_unit_test(test_unknown_times),
        cmocka_unit_test(test_epochs_begin_empty),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_fewest_workers_that_do),
        cmocka_unit_test(test_no_more_workers_than_the_device_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
