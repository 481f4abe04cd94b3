/* test_search.c: the search against loaders made of formulas, whose whole grid can be asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/stats.h"
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A loader: its samples wait and compute; handing a batch over costs the main process; a larger
 * prefetch evens out samples of different cost. */
struct world {
    double wait_s, cpu_s; /* a sample */
    double hand_over_s;   /* a batch */
    double cpus;
    double uneven;  /* share of the rate that prefetch 4 gives back; 8 the same once more */
    double start_s; /* a worker */
    double noise;   /* of a measurement, either way */
    double spread;  /* that a row reports */
    int fails_from; /* so many workers fail; 0: none */
    int disturbed;  /* so many workers get next to nothing done when first seen */
    double leat;    /* samples/s of leat.DataLoader */
    int64_t worker_bytes;
};

static double true_rate(const struct world *w, const struct tune_config *c)
{
    double sample = w->wait_s + w->cpu_s, size = (double)c->batch_size;
    if (c->leat)
        return w->leat;
    if (c->workers == 0)
        return 1 / sample;
    double workers = c->workers / sample, cpus = w->cpus / w->cpu_s;
    /* More workers than keep the CPUs busy only get in each other's way. */
    double over = fmax(0, c->workers * w->cpu_s / sample - w->cpus);
    double made = fmin(workers, cpus) / (1 + 0.02 * over);
    made *= 1 - w->uneven / (c->prefetch / 2.0);
    return fmin(made, size / w->hand_over_s);
}

static void measure(const struct world *w, struct tune_result *r, const struct tune_config *c,
                    uint64_t *seed)
{
    struct tune_row *row = tune_find(r, c);
    double luck = (double)(stats_random(7, (*seed)++) >> 11) / 0x1p53;
    double rate = true_rate(w, c) * (1 + w->noise * (2 * luck - 1));
    if (!row) {
        row = &r->rows[r->row_count++];
        *row = (struct tune_row){.config = *c, .rate = NAN, .restart_s = NAN};
    }
    row->times++;
    if (w->disturbed && w->disturbed == c->workers && row->times == 1)
        rate /= 20;
    row->memory_bytes = 1000 + c->workers * w->worker_bytes;
    if (w->fails_from && c->workers >= w->fails_from) {
        row->status = TUNE_FAILED;
        return;
    }
    row->rate = row->times > 1 ? (row->rate + rate) / 2 : rate;
    row->spread_ratio = w->spread;
    row->first_batch_s = row->first_round_s =
        w->start_s * c->workers + (double)c->batch_size * (w->wait_s + w->cpu_s);
    if (c->persistent)
        row->restart_s = 0.01;
    if (tune_config_same(c, &r->facts.now))
        r->now = (int)(row - r->rows);
}

static void begin(const struct world *w, struct tune_result *r, int workers)
{
    tune_result_init(r);
    r->limits = (struct tune_limits){
        .cpus = w->cpus, .memory_bytes = -1, .shm_bytes = -1, .time_s = 100, .most_workers = 32};
    r->facts.now =
        (struct tune_config){.workers = workers, .prefetch = workers ? 2 : 0, .batch_size = 32};
    r->facts.epoch_batches = 1000;
    r->facts.can_batch = 1;
    r->facts.sample_calm_s = r->facts.sample_mean_s = w->wait_s + w->cpu_s;
    r->facts.sample_cpu_s = w->cpu_s;
}

/* How many measurements it took. */
static int search(const struct world *w, struct tune_result *r, uint64_t seed)
{
    struct tune_config config;
    int count = 0;
    while (search_next(r, &config)) {
        measure(w, r, &config, &seed);
        assert_true(++count < 60);
    }
    return count;
}

static double grid_best(const struct world *w, const struct tune_result *r)
{
    double best = 0;
    for (int workers = 0; workers <= r->limits.most_workers; workers++)
        for (int prefetch = 2; prefetch <= 8; prefetch *= 2) {
            struct tune_config c = {.workers = workers, .prefetch = prefetch, .batch_size = 32};
            best = fmax(best, true_rate(w, &c));
        }
    return best;
}

static const struct world computes = {.cpu_s = 5e-3, .hand_over_s = 1e-3, .cpus = 6};
static const struct world waits = {
    .wait_s = 20e-3, .cpu_s = 1e-3, .hand_over_s = 1e-3, .cpus = 2, .start_s = 0.05};
static const struct world in_memory = {.cpu_s = 4e-6, .hand_over_s = 1e-3, .cpus = 8};
static const struct world uneven = {
    .wait_s = 1e-3, .cpu_s = 3e-3, .hand_over_s = 1e-3, .cpus = 8, .uneven = 0.2};

/* Within 5 % of the best of all settings, and never more than a fifth of their number. */
static void the_best_of_the_grid_is_found(void **state)
{
    const struct world *worlds[] = {&computes, &waits, &in_memory, &uneven};
    for (size_t i = 0; i < 4; i++) {
        for (int workers = 0; workers <= 16; workers += 8) {
            struct tune_result r;
            struct tune_config choice;
            begin(worlds[i], &r, workers);
            int count = search(worlds[i], &r, 0);
            assert_int_equal(search_choice(&r, &choice), 0);
            double found = true_rate(worlds[i], &choice), best = grid_best(worlds[i], &r);
            if (found < 0.95 * best || count > 13)
                print_message("world %zu from %d: %d workers, %d ahead: %.0f of %.0f in %d\n", i,
                              workers, choice.workers, choice.prefetch, found, best, count);
            assert_true(found >= 0.95 * best);
            assert_true(count <= 13); /* of 97 */
            tune_result_done(&r);
        }
    }
}

/* With measurements that are off by up to 3 %, which is what a known rate means. */
static void noise_of_3_percent_loses_little(void **state)
{
    const struct world *worlds[] = {&computes, &waits, &in_memory, &uneven};
    int good = 0, all = 0;
    for (size_t i = 0; i < 4; i++) {
        struct world w = *worlds[i];
        w.noise = 0.03;
        for (uint64_t seed = 0; seed < 50; seed++) {
            struct tune_result r;
            struct tune_config choice;
            begin(&w, &r, 0);
            search(&w, &r, seed * 1000);
            assert_int_equal(search_choice(&r, &choice), 0);
            good += true_rate(&w, &choice) >= 0.95 * grid_best(&w, &r);
            all++;
            tune_result_done(&r);
        }
    }
    print_message("%d of %d within 5 %%\n", good, all);
    assert_true(good >= all * 9 / 10);
}

/* Prefetch 4 gains what noise can hide, 8 nearly twice that: the first must not end the question.
 */
static void a_small_gain_of_prefetch_is_found(void **state)
{
    struct world w = {.cpu_s = 1e-3, .hand_over_s = 1e-3, .cpus = 2, .uneven = 0.1, .noise = 0.03};
    int good = 0, all = 200;
    for (int seed = 0; seed < all; seed++) {
        struct tune_result r;
        struct tune_config choice;
        begin(&w, &r, 0);
        assert_true(search(&w, &r, (uint64_t)seed * 1000) <= 13);
        assert_int_equal(search_choice(&r, &choice), 0);
        good += true_rate(&w, &choice) >= 0.95 * grid_best(&w, &r);
        tune_result_done(&r);
    }
    print_message("%d of %d within 5 %%\n", good, all);
    assert_true(good >= all * 95 / 100);
}

/* A row that is chosen for being simpler, though it was measured worse, was measured twice. */
static void a_simpler_choice_was_measured_twice(void **state)
{
    struct world w = {.cpu_s = 1e-3,
                      .hand_over_s = 1e-3,
                      .cpus = 8,
                      .uneven = 0.04,
                      .noise = 0.03,
                      .spread = 0.04};
    int worse = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct tune_result r;
        double top = 0;
        begin(&w, &r, 0);
        search(&w, &r, seed * 1000);
        for (size_t i = 0; i < r.row_count; i++)
            top = fmax(top, r.rows[i].rate);
        const struct tune_row *chosen = &r.rows[tune_best(&r)];
        worse += chosen->rate < top * (1 - TUNE_SAME);
        assert_true(chosen->rate >= top * (1 - TUNE_SAME) || chosen->times >= 2);
        tune_result_done(&r);
    }
    assert_true(worse > 0);
}

/* The knee is measured in a bad moment, once: that does not end the search. */
static void one_disturbed_row_is_measured_again(void **state)
{
    struct world w = computes;
    struct tune_result r;
    struct tune_config config;
    uint64_t seed = 0;
    int count = 0;
    w.cpus = 2; /* the knee is also the first step up from no workers */
    begin(&w, &r, 0);
    while (search_next(&r, &config) && count++ < 40) {
        struct tune_row *row = tune_find(&r, &config);
        measure(&w, &r, &config, &seed);
        if (!row && config.workers == 2)
            tune_find(&r, &config)->rate = 100; /* half of what no worker at all gives */
    }
    assert_int_equal(search_choice(&r, &config), 0);
    assert_true(true_rate(&w, &config) >= 0.95 * grid_best(&w, &r));
    tune_result_done(&r);
}

static void fewer_workers_win_a_tie(void **state)
{
    struct world w = in_memory;
    struct tune_result r;
    struct tune_config choice;
    w.hand_over_s = 32 * 4e-6; /* workers bring nothing at all */
    begin(&w, &r, 4);
    search(&w, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_int_equal(choice.workers, 0);
    assert_int_equal(choice.persistent, 0);
    tune_result_done(&r);
}

/* Other programs had the CPUs when samples were timed, so little is expected of the knee, and when
 * it was measured. */
static void a_knee_that_loses_is_measured_again(void **state)
{
    struct world w = computes;
    struct tune_result r;
    struct tune_config choice;
    w.disturbed = 6;
    begin(&w, &r, 0);
    r.facts.sample_calm_s = r.facts.sample_mean_s = r.facts.sample_cpu_s = 10 * w.cpu_s;
    search(&w, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_int_equal(choice.workers, 6);
    tune_result_done(&r);
}

/* Samples in memory: what costs is handing over, so their own time leaves much to be doubted. */
static void no_more_workers_than_cpus_for_samples_that_compute(void **state)
{
    for (int cpus = 1; cpus <= 16; cpus *= 4) {
        struct world w = in_memory;
        struct tune_result r;
        w.cpus = cpus;
        begin(&w, &r, 2);
        r.limits.most_workers = 64;
        assert_true(search(&w, &r, 0) <= 13);
        for (size_t i = 0; i < r.row_count; i++)
            assert_true(r.rows[i].config.workers <= (cpus < 2 ? 2 : cpus)); /* 2: their own */
        tune_result_done(&r);
    }
    /* Those that wait may have more. */
    struct tune_result r;
    begin(&waits, &r, 2);
    assert_int_equal(cost_most_workers(&r), r.limits.most_workers);
    tune_result_done(&r);
}

/* leat.DataLoader is one row more; that it is fast must not change what is asked of torch's. */
static void leat_dataloader_is_one_row(void **state)
{
    static const double rates[] = {10, 32100, 1e7};
    for (size_t i = 0; i < 3; i++) {
        struct world w = in_memory;
        struct tune_result without, with;
        struct tune_config choice;
        w.leat = rates[i];
        begin(&w, &without, 2);
        int count = search(&w, &without, 0);
        begin(&w, &with, 2);
        with.facts.can_leat = 1;
        assert_int_equal(search(&w, &with, 0), count + 1);
        assert_int_equal(search_choice(&with, &choice), 0);
        assert_int_equal(choice.leat, rates[i] > 1e6); /* a tie is no reason to change */
        int rows = 0;
        for (size_t k = 0; k < with.row_count; k++)
            rows += with.rows[k].config.leat;
        assert_int_equal(rows, 1);
        tune_result_done(&without);
        tune_result_done(&with);
    }
}

static void failing_worker_counts_are_skipped(void **state)
{
    struct world w = computes;
    struct tune_result r;
    struct tune_config choice;
    w.fails_from = 4;
    begin(&w, &r, 0);
    search(&w, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_true(choice.workers >= 1 && choice.workers < 4);
    tune_result_done(&r);
}

static void a_dataset_that_always_fails_ends_the_search(void **state)
{
    struct tune_result r;
    struct tune_config config;
    begin(&computes, &r, 2);
    int count = 0;
    while (search_next(&r, &config)) {
        struct tune_row *row = tune_find(&r, &config);
        assert_null(row); /* nothing twice */
        r.rows[r.row_count++] =
            (struct tune_row){.config = config, .status = TUNE_FAILED, .rate = NAN, .times = 1};
        count++;
    }
    assert_int_equal(count, 4); /* 2, 6, 3, none */
    assert_int_equal(search_choice(&r, &config), -ENOENT);
    tune_result_done(&r);
}

static void memory_is_a_limit(void **state)
{
    struct world w = computes;
    struct tune_result r;
    struct tune_config choice, one = {.workers = 1, .prefetch = 2, .batch_size = 32};
    w.worker_bytes = 100000;
    begin(&w, &r, 0);
    r.limits.memory_bytes = 1000 + 2 * 100000 + 50000;
    /* Before a worker was seen, its size is not known: the first row may be too large. */
    r.rows[r.row_count++] = (struct tune_row){.config = one,
                                              .rate = true_rate(&w, &one),
                                              .first_round_s = 0.1,
                                              .restart_s = NAN,
                                              .times = 1,
                                              .memory_bytes = 101000};
    search(&w, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_int_equal(choice.workers, 2);
    int skipped = 0;
    for (size_t i = 0; i < r.row_count; i++) {
        skipped += r.rows[i].status == TUNE_SKIPPED;
        if (r.rows[i].status != TUNE_SKIPPED)
            assert_true(r.rows[i].config.workers <= 2);
    }
    assert_true(skipped > 0);
    tune_result_done(&r);
}

static void shared_memory_is_a_limit(void **state)
{
    struct leat_err err = {""};
    struct tune_result r;
    begin(&computes, &r, 0);
    r.facts.batch_bytes = 1 << 20;
    r.limits.shm_bytes = 16 << 20;
    struct tune_config config = {.workers = 6, .prefetch = 2, .batch_size = 32};
    assert_int_equal(cost_fits(&r, &config, &err), 0);
    config.batch_size = 64;
    assert_int_equal(cost_fits(&r, &config, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "/dev/shm")); /* names the limit */
    tune_result_done(&r);
}

static void persistent_workers_where_starting_is_slow(void **state)
{
    struct tune_result r;
    struct tune_config choice;
    begin(&waits, &r, 0);
    r.facts.epoch_batches = 40; /* half a second of data, more than that of starting */
    search(&waits, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_int_equal(choice.persistent, 1);
    const struct tune_row *row = tune_find(&r, &choice);
    assert_true(row->restart_s > 0);
    assert_true(tune_score(&r.facts, row, 0) < 0.8 * tune_score(&r.facts, row, 1));
    tune_result_done(&r);

    begin(&waits, &r, 0);
    r.facts.epoch_batches = 1000000;
    search(&waits, &r, 0);
    assert_int_equal(search_choice(&r, &choice), 0);
    assert_int_equal(choice.persistent, 0);
    tune_result_done(&r);
}

static void given_batch_sizes_are_measured(void **state)
{
    struct world w = in_memory;
    struct tune_result r;
    struct tune_config choice;
    w.cpu_s = 1e-6; /* handing over decides: larger batches are better */
    w.hand_over_s = 1e-4;
    begin(&w, &r, 4);
    r.limits.size_count = 2;
    r.limits.sizes[0] = 64;
    r.limits.sizes[1] = 128;
    search(&w, &r, 0);
    int seen = 0;
    for (size_t i = 0; i < r.row_count; i++)
        seen += r.rows[i].config.batch_size == 64 || r.rows[i].config.batch_size == 128;
    assert_true(seen >= 2);
    assert_int_equal(search_choice(&r, &choice), 0);
    tune_result_done(&r);
}

static void the_call_line_keeps_the_users_arguments(void **state)
{
    struct tune_facts f = {
        .call_name = "data.DataLoader", .now = {.workers = 4, .batch_size = 32}
    };
    struct tune_config c = {.workers = 8, .prefetch = 4, .persistent = 1, .batch_size = 32};
    struct str line = {0};
    f.call = json_pack("[[ss][ss][ss][ss][ss]]", "", "train_set", "batch_size", "args.bs",
                       "num_workers", "args.workers", "pin_memory", "True", "shuffle", "True");
    tune_call_line(&f, &c, &line);
    assert_string_equal(str_text(&line),
                        "data.DataLoader(train_set, batch_size=args.bs, num_workers=8, "
                        "shuffle=True, prefetch_factor=4, persistent_workers=True)");
    str_done(&line);
    c = (struct tune_config){.workers = 0, .pin = 1, .batch_size = 64};
    tune_call_line(&f, &c, &line);
    assert_string_equal(str_text(&line),
                        "data.DataLoader(train_set, batch_size=64, pin_memory=True, shuffle=True)");
    str_done(&line);
    json_decref(f.call);
    f.call = NULL;
    f.call_name[0] = 0;
    c.batch_size = 32;
    tune_call_line(&f, &c, &line);
    assert_string_equal(str_text(&line), "DataLoader(dataset, pin_memory=True)");
    str_done(&line);
}

static void the_call_line_of_leat(void **state)
{
    struct tune_facts f = {
        .call_name = "data.DataLoader", .device = "cuda", .now = {.workers = 4, .batch_size = 32}
    };
    struct tune_config c = {.leat = 1, .batch_size = 32};
    struct str line = {0};
    f.call = json_pack("[[ss][ss][ss][ss][ss][ss]]", "", "train_set", "batch_size", "args.bs",
                       "num_workers", "args.workers", "pin_memory", "True", "shuffle", "True",
                       "timeout", "60");
    tune_call_line(&f, &c, &line);
    assert_string_equal(
        str_text(&line),
        "leat.DataLoader(train_set, batch_size=args.bs, shuffle=True, device=\"cuda\")");
    str_done(&line);
    json_decref(f.call);
    f.call = json_pack("[[ss][ss]]", "", "train_set", "device", "dev");
    f.now.leat = 1;
    tune_call_line(&f, &c, &line);
    assert_string_equal(str_text(&line), "data.DataLoader(train_set, device=dev)");
    str_done(&line);
    json_decref(f.call);
}

static void verdict(double now, double best, double model, enum tune_bottleneck what, double factor)
{
    struct tune_result r;
    struct tune_verdict v;
    tune_result_init(&r);
    r.facts.now.batch_size = 10;
    r.rows[0] = (struct tune_row){.config = {.batch_size = 10}, .rate = now};
    r.rows[1] = (struct tune_row){
        .config = {.workers = 4, .batch_size = 10},
          .rate = best
    };
    r.row_count = 2;
    r.now = 0;
    r.step_samples = 10;
    r.step_s = 10 / model;
    r.cached_rate = 1e6;
    tune_judge(&r, &v);
    assert_int_equal(v.bottleneck, what);
    if (!isnan(factor))
        assert_float_equal(v.factor, factor, 1e-6);
    assert_true(v.sentence[0] && strlen(v.sentence) < sizeof v.sentence - 1);
    tune_result_done(&r);
}

/* Where no settings reach the model's rate, the verdict names what limits the loader: the cost of a
 * sample, or handing batches over, which `cached` bounds. */
static void the_limit_of_the_loader(void **state)
{
    const struct {
        double cached;
        enum tune_limit limit;
        double cheaper;
    } cases[] = {
        {500,  LIMIT_HAND_OVER, NAN },
        {900,  LIMIT_SAMPLE,    2.25}, /* handing over ends at 900 */
        {5000, LIMIT_SAMPLE,    2.5 },
        {NAN,  LIMIT_SAMPLE,    2.5 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tune_result r;
        struct tune_verdict v;
        tune_result_init(&r);
        r.facts.now.batch_size = 10;
        r.rows[0] = (struct tune_row){.config = {.batch_size = 10}, .rate = 400};
        r.row_count = 1;
        r.now = 0;
        r.step_samples = 10;
        r.step_s = 0.01; /* 1000 samples/s */
        r.cached_rate = cases[i].cached;
        tune_judge(&r, &v);
        assert_int_equal(v.limit, cases[i].limit);
        if (isnan(cases[i].cheaper))
            assert_true(isnan(v.sample_cheaper));
        else
            assert_float_equal(v.sample_cheaper, cases[i].cheaper, 1e-9);
        tune_result_done(&r);
    }
}

static void loader_or_model(void **state)
{
    verdict(100, 400, 200, BOTTLENECK_LOADER, 2);
    verdict(100, 400, 1000, BOTTLENECK_LOADER, 10);
    verdict(300, 400, 200, BOTTLENECK_MODEL, 1.5);
    verdict(100, 400, NAN, BOTTLENECK_UNKNOWN, NAN);
    verdict(NAN, 400, 200, BOTTLENECK_LOADER, NAN);
    verdict(NAN, NAN, 200, BOTTLENECK_UNKNOWN, NAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_the_grid_is_found),
        cmocka_unit_test(noise_of_3_percent_loses_little),
        cmocka_unit_test(a_small_gain_of_prefetch_is_found),
        cmocka_unit_test(a_simpler_choice_was_measured_twice),
        cmocka_unit_test(one_disturbed_row_is_measured_again),
        cmocka_unit_test(fewer_workers_win_a_tie),
        cmocka_unit_test(a_knee_that_loses_is_measured_again),
        cmocka_unit_test(no_more_workers_than_cpus_for_samples_that_compute),
        cmocka_unit_test(leat_dataloader_is_one_row),
        cmocka_unit_test(failing_worker_counts_are_skipped),
        cmocka_unit_test(a_dataset_that_always_fails_ends_the_search),
        cmocka_unit_test(memory_is_a_limit),
        cmocka_unit_test(shared_memory_is_a_limit),
        cmocka_unit_test(persistent_workers_where_starting_is_slow),
        cmocka_unit_test(given_batch_sizes_are_measured),
        cmocka_unit_test(the_call_line_keeps_the_users_arguments),
        cmocka_unit_test(the_call_line_of_leat),
        cmocka_unit_test(loader_or_model),
        cmocka_unit_test(the_limit_of_the_loader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
