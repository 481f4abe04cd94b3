/* test_loader_model.c: the range of gains of a setting: a point where all was measured, and wider
 * for each thing that was not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "predict/loader_model.h"

#include <math.h>

static struct facts facts;
static struct rank_facts rank;
static struct loader_fact loader;

/* Two workers make batches of 40 ms, half of it computing, for a step of 10 ms: 20 ms per step on a
 * machine with many cores. */
static struct loader_view measured(void)
{
    const struct part_stats none = {.mean = NAN, .median = NAN, .total = NAN};
    facts = (struct facts){.cpus = 64};
    rank = (struct rank_facts){.pid = 100, .kept = 100, .kept_ms = 2000};
    loader = (struct loader_fact){.pid = 100, .num_workers = 2, .prefetch_factor = 2};
    return (struct loader_view){.facts = &facts,
                                .rank = &rank,
                                .loader = &loader,
                                .input_ms = 10,
                                .wall_ms = 20,
                                .rest_ms = 10,
                                .batches_per_step = 1,
                                .cores = 64,
                                .cores_left = 64,
                                .idle_cores = 62,
                                .worker_count = 2,
                                .worker_busy = 1,
                                .worker_cpu = 0.5,
                                .main_cpu = 0.5,
                                .make_ms = 40,
                                .sample = none,
                                .fetch = none,
                                .collate = none,
                                .pickle = none,
                                .unpickle = none,
                                .pin = none,
                                .read_share = NAN,
                                .decode_share = NAN,
                                .blocked_share = NAN};
}

static struct gain_range gains_with(const struct loader_view *view, int workers)
{
    struct what_if then = loader_model(view);
    then.workers = workers;
    return loader_model_gains(view, &then);
}

static double width(const struct loader_view *view, int workers)
{
    struct gain_range gains = gains_with(view, workers);
    assert_true(gains.low > 0 && gains.high >= gains.low);
    return gains.high / gains.low;
}

static void test_all_was_measured(void **state)
{
    struct loader_view view = measured();
    struct gain_range gains = gains_with(&view, 4);
    assert_true(gains.low > 1.7 &&
                gains.high < 2); /* 20 ms become 11: the step and its hand-over */
    assert_true(width(&view, 4) < 1.05);
    assert_true(width(&view, 2) < 1.05);
}

static void test_each_doubt_widens_the_range(void **state)
{
    struct loader_view view = measured();
    double known = width(&view, 4);
    view.cores = 4;
    view.foreign_cores = 2.5; /* others share the cores, or keep theirs */
    view.foreign_threads = 2.5;
    assert_true(width(&view, 8) > 1.1 * known);
    view = measured();
    view.stolen = 0.5; /* a hypervisor took half of the CPU time, and may not do so again */
    assert_true(width(&view, 2) > 1.1 * known);
    view = measured();
    view.cores = 2; /* a worker may share the core of the training */
    view.main_cpu = 1;
    view.worker_cpu = 1;
    assert_true(width(&view, 4) > 1.1 * known);
    view = measured();
    loader.num_workers = 0; /* how late workers answer was never measured */
    view.worker_count = 0;
    view.main_cpu = 1;
    view.make_ms = view.input_ms = 12;
    view.wall_ms = 22;
    rank.kept_ms = 2200;
    assert_true(width(&view, 1) > 1.05);
    assert_true(width(&view, 4) < 1.01); /* idle workers answer at once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_was_measured),
        cmocka_unit_test(test_each_doubt_widens_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
