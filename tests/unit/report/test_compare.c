/* test_compare.c: the statistics of a comparison, against samples whose truth is known. The seeds
 * are fixed: the counts below are the same on every machine, and in every run.
 *
 * The tests that count over hundreds of samples are left out of sanitizer builds: a bad access
 * shows in one sample as well as in 300, and the arithmetic is that of the plain build. */
#include "report_testing.h"

#include "base/stats.h"
#include "report/compare.h"
#include "unit/figures.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

/* ---- samples with a known truth ---------------------------------------------------------------
 */

/* Standard normal from two draws (Box and Muller). */
static double normal(uint64_t seed, uint64_t i)
{
    double u = ((double)(stats_random(seed, 2 * i) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(stats_random(seed, 2 * i + 1) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Step times around `centre`, with a relative deviation and a correlation from step to step (AR 1).
 * Log-normal: skewed to the slow side, as step times are. */
static void draw(double *out, size_t n, double centre, double deviation, double correlation,
                 uint64_t seed)
{
    double state = normal(seed, 0), fresh = sqrt(1 - correlation * correlation);
    for (size_t i = 0; i < n; i++) {
        state = correlation * state + fresh * normal(seed, i + 1);
        out[i] = centre * exp(deviation * state);
    }
}

#if COUNTS
/* Of pairs of runs of 60 steps that are undecided and give the number of steps that would decide
 * it, the share that is decided with `part` of that many, in percent. The longer runs are generated
 * again, with a true change as it seemed in the short ones (`truth` 0), or are the same runs with
 * more steps. */
static int decided_after(double truth, double part)
{
    enum { SEEDS = 60, FEW = 60 };
    double *before = mem_alloc_array(RATIO_MOST_STEPS, sizeof *before);
    double *after = mem_alloc_array(RATIO_MOST_STEPS, sizeof *after);
    int decided = 0, open = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct ratio r;
        double usual = truth > 0 ? 100 * truth : 95 + (double)(seed % 11); /* 95 to 105 */
        draw(before, FEW, 100, 0.12, 0, seed * 2);
        draw(after, FEW, usual, 0.12, 0, seed * 2 + 1);
        assert_int_equal(ratio_of_medians(before, FEW, after, FEW, RATIO_MOST_STEPS, &r), 0);
        int64_t more = ratio_more_steps(&r, 0.03);
        if (ratio_judge(&r, 0.03) != CHANGE_UNCLEAR || more < 0)
            continue;
        size_t n = FEW + (size_t)(part * (double)more);
        assert_true(n <= RATIO_MOST_STEPS);
        draw(before, n, 100, 0.12, 0, seed * 2 + (truth > 0 ? 0 : 1000));
        draw(after, n, truth > 0 ? usual : 100 * r.ratio, 0.12, 0,
             seed * 2 + 1 + (truth > 0 ? 0 : 1000));
        assert_int_equal(ratio_of_medians(before, n, after, n, RATIO_MOST_STEPS, &r), 0);
        decided += ratio_judge(&r, 0.03) != CHANGE_UNCLEAR;
        open++;
    }
    mem_free(before);
    mem_free(after);
    assert_true(open >= 20);
    return 100 * decided / open;
}

/* What "about N more steps would decide it" promises; and that N is not far too many. */
static void predicted_steps_decide(void **state)
{
    assert_true(decided_after(0, 1) >= 70); /* 80 are meant */
    assert_true(decided_after(0, 0.25) <= 50);
    assert_true(decided_after(1.06, 1) >= 80);
}

struct counts {
    int of[4];    /* by enum change */
    int excludes; /* intervals that leave the truth out */
};

static struct counts many(int seeds, size_t n, double truth, double deviation, double correlation)
{
    struct counts counts = {{0}, 0};
    double *before = mem_alloc_array(n, sizeof *before), *after = mem_alloc_array(n, sizeof *after);
    for (int seed = 0; seed < seeds; seed++) {
        struct ratio r;
        draw(before, n, 100, deviation, correlation, (uint64_t)seed * 2 + 1);
        draw(after, n, 100 * truth, deviation, correlation, (uint64_t)seed * 2 + 2);
        assert_int_equal(ratio_of_medians(before, n, after, n, 4096, &r), 0);
        counts.of[ratio_judge(&r, 0.03)]++;
        counts.excludes += truth < r.low || truth > r.high;
    }
    mem_free(before);
    mem_free(after);
    return counts;
}

static void equal_runs_are_no_change(void **state)
{
    struct counts few = many(300, 60, 1, 0.10, 0);
    assert_true(few.of[CHANGE_WORSE] + few.of[CHANGE_BETTER] <= 21); /* 7 % of 300 */
    struct counts long_runs = many(50, 1000, 1, 0.10, 0);
    assert_int_equal(long_runs.of[CHANGE_WORSE] + long_runs.of[CHANGE_BETTER], 0);
    assert_true(long_runs.of[CHANGE_SAME] >= 48);
}

/* Coverage is what "95 %" promises; the blocks must keep it where steps depend on each other. */
static void intervals_cover_the_truth(void **state)
{
    struct counts alone = many(300, 200, 1, 0.10, 0);
    assert_true(alone.excludes <= 27); /* 5 % expected; 9 % is three deviations above */
    struct counts few = many(300, 60, 1, 0.10, 0.5);
    assert_true(few.excludes <= 27);
    assert_true(few.of[CHANGE_WORSE] + few.of[CHANGE_BETTER] <= 21);
    struct counts strong = many(300, 400, 1, 0.10, 0.8);
    assert_true(strong.excludes <= 33); /* a bootstrap of single steps misses 130 of 300 */
}

static void a_true_change_is_found(void **state)
{
    struct counts slower = many(50, 1000, 1.05, 0.10, 0);
    assert_true(slower.of[CHANGE_WORSE] >= 49);
    assert_int_equal(slower.of[CHANGE_SAME] + slower.of[CHANGE_BETTER], 0);
    struct counts faster = many(20, 1000, 0.5, 0.10, 0.5);
    assert_int_equal(faster.of[CHANGE_BETTER], 20);
}

/* At the threshold noise must not turn "the same" into "slower": undecided lies between them. */
static void noise_at_the_threshold_is_undecided(void **state)
{
    struct counts below = many(100, 400, 1.029, 0.30, 0), above = many(100, 400, 1.030, 0.30, 0);
    assert_true(below.of[CHANGE_UNCLEAR] >= 70 && above.of[CHANGE_UNCLEAR] >= 70);
    assert_int_equal(below.of[CHANGE_SAME] + above.of[CHANGE_SAME], 0);
    assert_true(abs(below.of[CHANGE_WORSE] - above.of[CHANGE_WORSE]) <= 5);
    struct counts quiet = many(100, 400, 1.029, 0.002, 0);
    assert_int_equal(quiet.of[CHANGE_SAME], 100); /* without noise it is simply below */
}
#endif

static void the_same_input_gives_the_same_interval(void **state)
{
    double before[500], after[500];
    struct ratio one, two;
    draw(before, 500, 100, 0.2, 0.3, 7);
    draw(after, 500, 110, 0.2, 0.3, 8);
    assert_int_equal(ratio_of_medians(before, 500, after, 500, 4096, &one), 0);
    assert_int_equal(ratio_of_medians(before, 500, after, 500, 4096, &two), 0);
    assert_memory_equal(&one, &two, sizeof one);
    assert_true(one.low < one.ratio && one.ratio < one.high);
}

static void blocks_follow_the_dependence(void **state)
{
    static double values[1000];
    draw(values, 1000, 100, 0.1, 0, 3);
    assert_true(ratio_block_length(values, 1000) <= 10); /* the cube root */
    draw(values, 1000, 100, 0.1, 0.95, 3);
    assert_true(ratio_block_length(values, 1000) >= 20);
    for (size_t i = 0; i < 1000; i++)
        values[i] = 5; /* a clock with coarse ticks */
    assert_int_equal(ratio_block_length(values, 1000), 1);
}

static void edges(void **state)
{
    double few[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, zeros[20] = {0}, ones[20];
    struct ratio r;
    for (size_t i = 0; i < 20; i++)
        ones[i] = 1;
    assert_int_equal(ratio_of_medians(few, 9, ones, 20, 4096, &r), 0);
    assert_true(isnan(r.low));
    assert_int_equal(ratio_judge(&r, 0.03), CHANGE_UNCLEAR);
    assert_int_equal(ratio_of_medians(zeros, 20, ones, 20, 4096, &r), 0);
    assert_true(isnan(r.ratio));
    assert_int_equal(ratio_of_medians(ones, 20, ones, 20, 4096, &r), 0);
    assert_true(r.low == 1 && r.high == 1 && r.ratio == 1);
    assert_int_equal(ratio_judge(&r, 0.03), CHANGE_SAME);
    assert_int_equal(ratio_of_medians(NULL, 0, NULL, 0, 4096, &r), 0);
    assert_true(isnan(r.ratio));
}

static void every_allocation_may_fail(void **state)
{
    double values[30];
    struct ratio r;
    draw(values, 30, 100, 0.1, 0, 5);
    int failures = 0;
    for (unsigned long n = 1; n < 100; n++) {
        mem_fail_at(n);
        int result = ratio_of_medians(values, 30, values, 30, 4096, &r);
        unsigned long tried = mem_fail_at(0);
        if (tried < n)
            break;
        failures += result == -ENOMEM;
        assert_true(result == 0 || result == -ENOMEM);
    }
    assert_true(failures >= 9);
}

static void thinning_keeps_periodic_steps(void **state)
{
    /* Every 25th step is slow. Every 25th of 102 400 would be 4096 values: a fixed stride could see
     * nothing but slow ones. */
    size_t n = 102400;
    double *before = mem_alloc_array(n, sizeof *before), *after = mem_alloc_array(n, sizeof *after);
    struct ratio r;
    for (size_t i = 0; i < n; i++) {
        before[i] = 100;
        after[i] = i % 25 == 0 ? 500 : 100;
    }
    assert_int_equal(ratio_of_medians(before, n, after, n, 4096, &r), 0);
    assert_true(r.ratio == 1);
    assert_int_equal(r.n_before, 4096);
    mem_free(before);
    mem_free(after);
}

/* ---- the number of steps that would decide --------------------------------------------------- */

static void more_steps_decide(void **state)
{
    double before[4000], after[4000];
    struct ratio r;
    draw(before, 60, 100, 0.15, 0, 11);
    draw(after, 60, 104, 0.15, 0, 12);
    assert_int_equal(ratio_of_medians(before, 60, after, 60, 4096, &r), 0);
    assert_int_equal(ratio_judge(&r, 0.03), CHANGE_UNCLEAR);
    int64_t more = ratio_more_steps(&r, 0.03);
    assert_true(more > 60 && more < 100000);
    struct ratio at = {1.03, 0.99, 1.07, 100, 100, 1, 1},
                 near = {1.0299999, 1.0, 1.07, 100, 100, 1, 1};
    assert_true(ratio_more_steps(&at, 0.03) > 0); /* above: the interval must leave out 1 */
    assert_int_equal(ratio_more_steps(&near, 0.03), -1);
    struct ratio wide = {1, 0.9, 1.1, 1000, 1000, 1, 1}; /* 22 000 would do, but are never used */
    assert_int_equal(ratio_more_steps(&wide, 0.03), -1);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

struct side {
    json_t *summary;
    struct step_series steps;
    double values[1000];
};

static void make_side(struct side *side, double centre, double rss_mib, uint64_t seed)
{
    struct hand_run run;
    struct leat_err err = {""};
    hand_slow_input(&run);
    assert_int_equal(summary_build(&run.facts, &run.findings, &side->summary, &err), 0);
    findings_done(&run.findings);
    json_t *rank = json_pack("{s{sI}}", "0", "rss_peak_bytes", (json_int_t)(rss_mib * 1048576));
    json_object_set_new((json_t *)json_find(side->summary, "memory"), "ranks", rank);
    json_object_set_new((json_t *)json_find(side->summary, "step_time"), "median",
                        json_real(centre));
    draw(side->values, 1000, centre, 0.05, 0, seed);
    side->steps = (struct step_series){.wall = side->values, .count = 1000};
}

/* The comparison of two sides as JSON; the caller owns it. compare_text must take it. */
static json_t *compared(const struct side *before, const struct side *after)
{
    json_t *result = NULL;
    struct leat_err err = {""};
    struct str text = {0};
    assert_int_equal(compare_summaries("a", before->summary, &before->steps, "b", after->summary,
                                       &after->steps, 0.03, &result, &err),
                     0);
    compare_text(result, 0, &text);
    assert_true(text.length > 0 && !text.failed);
    str_done(&text);
    return result;
}

/* The kind of the verdict. */
static const char *verdict(const struct side *before, const struct side *after)
{
    static char kind[32];
    json_t *result = compared(before, after);
    snprintf(kind, sizeof kind, "%s", json_find_text(result, "verdict.kind", "?"));
    json_decref(result);
    return kind;
}

/* The runs are not comparable for one reason, whose figures are `figures`. */
static void assert_differs(const struct side *before, const struct side *after, const char *figures)
{
    json_t *result = compared(before, after);
    const json_t *list = json_object_get(result, "differences");
    assert_string_equal(json_find_text(result, "verdict.kind", ""), "INCONCLUSIVE");
    assert_true(json_is_false(json_find(result, "comparable")));
    assert_int_equal(json_array_size(list), 1);
    assert_figures(json_string_value(json_array_get(list, 0)), figures);
    json_decref(result);
}

static void time_and_memory_decide(void **state)
{
    static struct side base, slow, fast, fat, fast_fat, lean_slow, same;
    make_side(&base, 100, 1000, 1);
    make_side(&same, 100, 1020, 2);
    make_side(&slow, 112, 1000, 3);
    make_side(&fast, 70, 1000, 4);
    make_side(&fat, 100, 1500, 5);
    make_side(&fast_fat, 70, 1500, 6);
    make_side(&lean_slow, 112, 500, 7);
    assert_string_equal(verdict(&base, &same), "EQUIVALENT");
    assert_string_equal(verdict(&base, &slow), "REGRESSION");
    assert_string_equal(verdict(&base, &fast), "IMPROVEMENT");
    assert_string_equal(verdict(&base, &fat), "REGRESSION");
    assert_string_equal(verdict(&fat, &base), "IMPROVEMENT");
    assert_string_equal(verdict(&base, &fast_fat), "MIXED");
    assert_string_equal(verdict(&base, &lean_slow), "MIXED");
    struct side *const all[] = {&base, &same, &slow, &fast, &fat, &fast_fat, &lean_slow};
    for (size_t i = 0; i < 7; i++)
        json_decref(all[i]->summary);
}

static void incomparable_runs_are_inconclusive(void **state)
{
    static struct side base, other;
    make_side(&base, 100, 1000, 1);
    make_side(&other, 200, 1000, 2);
    json_t *loader = json_array_get(json_find(other.summary, "input.loaders"), 0);
    json_object_set_new(loader, "batch_size", json_integer(64));
    assert_differs(&base, &other, "32 64");
    json_object_set_new(loader, "batch_size", json_integer(32));
    json_object_set_new((json_t *)json_find(other.summary, "run"), "world_size", json_integer(4));
    assert_differs(&base, &other, "1 4");
    json_object_set_new((json_t *)json_find(other.summary, "run"), "world_size", json_integer(1));
    assert_string_equal(verdict(&base, &other), "REGRESSION");
    json_decref(base.summary);
    json_decref(other.summary);
}

static void set(json_t *summary, const char *part, const char *key, json_t *value)
{
    json_object_set_new((json_t *)json_find(summary, part), key, value);
}

/* Of two training loaders the one that the training waits for is compared. */
static void the_loader_waited_for_is_compared(void **state)
{
    struct hand_run run;
    struct loader_fact loaders[2];
    struct leat_err err = {""};
    static struct side sides[3];
    static const int64_t sizes[3][2] = {
        {8,  32},
        {16, 32},
        {8,  64}
    };
    hand_two_loaders(&run, loaders);
    for (int i = 0; i < 3; i++) {
        make_side(&sides[i], 100, 1000, 1);
        json_decref(sides[i].summary);
        loaders[0].batch_size = sizes[i][0];
        loaders[1].batch_size = sizes[i][1];
        assert_int_equal(summary_build(&run.facts, &run.findings, &sides[i].summary, &err), 0);
    }
    json_t *result = compared(&sides[0], &sides[1]);
    assert_int_equal(json_array_size(json_object_get(result, "differences")), 0);
    json_decref(result);
    assert_differs(&sides[0], &sides[2], "32 64");
    for (int i = 0; i < 3; i++)
        json_decref(sides[i].summary);
    findings_done(&run.findings);
}

/* Each property that makes steps incomparable, alone. */
static void each_difference_makes_runs_incomparable(void **state)
{
    enum { BATCHES, LENGTH, KIND, GPUS, MODEL, ROWS };
    static const char *const figures[ROWS] = {[BATCHES] = "1 4",
                                              [LENGTH] = "3200 6400",
                                              [KIND] = "",
                                              [GPUS] = "1 2",
                                              [MODEL] = "81920 40960"};
    for (int i = 0; i < ROWS; i++) {
        static struct side base, other;
        make_side(&base, 100, 1000, 1);
        make_side(&other, 200, 1000, 2);
        for (int j = 0; j < 2; j++) {
            json_t *summary = j ? other.summary : base.summary;
            json_t *loader = json_array_get(json_find(summary, "input.loaders"), 0);
            json_object_set_new(loader, "dataset_length",
                                json_integer(j && i == LENGTH ? 6400 : 3200));
            set(summary, "step_time", "micro_steps", json_integer(j && i == BATCHES ? 400 : 100));
            set(summary, "step_time", "kind",
                json_string(j && i == KIND ? "inference" : "training"));
            set(summary, "run", "devices",
                j && i == GPUS ? json_pack("[ss]", "GPU-1", "GPU-2") : json_pack("[s]", "GPU-1"));
            json_int_t mib = j && i == MODEL ? 40960 : 81920;
            set(summary, "system", "gpus",
                json_pack("[{ss sI s{sf}}]", "gpu", "GPU-1", "memory_total_bytes", mib * 1048576,
                          "utilization", "mean", j ? 0.25 : 0.5));
        }
        assert_differs(&base, &other, figures[i]);
        json_decref(base.summary);
        json_decref(other.summary);
    }
}

static const json_t *row_named(const json_t *result, const char *name)
{
    const json_t *row;
    size_t i;
    json_array_foreach (json_object_get(result, "rows"), i, row)
        if (strcmp(json_find_text(row, "name", ""), name) == 0)
            return row;
    return NULL;
}

/* How many notes the comparison has; it must find the runs equivalent. */
static size_t notes_of(const struct side *before, const struct side *after)
{
    json_t *result = compared(before, after);
    size_t count = json_array_size(json_object_get(result, "notes"));
    assert_string_equal(json_find_text(result, "verdict.kind", ""), "EQUIVALENT");
    json_decref(result);
    return count;
}

/* The mean over the GPUs of a run, where it is known; it is shown and not judged. */
static void gpu_utilization_is_shown(void **state)
{
    static struct side base, other;
    make_side(&base, 100, 1000, 1);
    make_side(&other, 100, 1000, 2);
    json_t *result = compared(&base, &other);
    assert_null(row_named(result, "GPU busy"));
    json_decref(result);
    set(base.summary, "system", "gpus",
        json_pack("[{ss s{sf}} {ss s{sf}} {ss sn}]", "gpu", "GPU-1", "utilization", "mean", 0.9,
                  "gpu", "GPU-2", "utilization", "mean", 0.5, "gpu", "GPU-3", "utilization"));
    set(other.summary, "system", "gpus",
        json_pack("[{ss s{sf}}]", "gpu", "GPU-1", "utilization", "mean", 0.35));
    result = compared(&base, &other);
    assert_string_equal(json_find_text(result, "verdict.kind", ""), "EQUIVALENT");
    const json_t *row = row_named(result, "GPU busy");
    assert_float_equal(json_find_number(row, "before", NAN), 0.7, 1e-9);
    assert_float_equal(json_find_number(row, "after", NAN), 0.35, 1e-9);
    assert_float_equal(json_find_number(row, "change", NAN), -0.5, 1e-9);
    assert_true(json_is_null(json_object_get(row, "judged")));
    json_decref(result);
    json_decref(base.summary);
    json_decref(other.summary);
}

/* A summary has no model names, so other devices are worth a note. */
static void other_devices_are_a_note(void **state)
{
    static struct side base, other;
    make_side(&base, 100, 1000, 1);
    make_side(&other, 100, 1000, 2);
    size_t usual = notes_of(&base, &other);
    set(base.summary, "run", "devices", json_pack("[s]", "GPU-1"));
    set(other.summary, "run", "devices", json_pack("[s]", "GPU-1"));
    assert_int_equal(notes_of(&base, &other), usual);
    set(other.summary, "run", "devices", json_pack("[s]", "GPU-2"));
    assert_int_equal(notes_of(&base, &other), usual + 1);
    json_decref(base.summary);
    json_decref(other.summary);
}

static void set_steps(json_t *summary, double median, double p99)
{
    json_t *step_time = (json_t *)json_find(summary, "step_time");
    json_object_set_new(step_time, "median", json_real(median));
    json_object_set_new(step_time, "p99", json_real(p99));
}

/* Without the steps of both runs nothing is decided unless the step times hardly overlap. */
static void without_steps(void **state)
{
    static struct side base, other;
    make_side(&base, 100, 1000, 1);
    make_side(&other, 108, 1000, 2);
    base.steps = other.steps = (struct step_series){.note = "there is no run.db"};
    set_steps(base.summary, 100, 130);
    set_steps(other.summary, 108, 140);
    json_t *result = compared(&base, &other);
    assert_string_equal(json_find_text(result, "verdict.kind", ""), "INCONCLUSIVE");
    assert_true(json_is_true(json_find(result, "comparable")));
    assert_true(json_is_null(json_find(result, "basis.block_before")));
    assert_true(json_is_null(json_object_get(row_named(result, "step time"), "low")));
    assert_non_null(row_named(result, "step time"));
    /* One note per run, and one because both have the same name and start. */
    assert_int_equal(json_array_size(json_object_get(result, "notes")), 3);
    json_decref(result);
    set_steps(other.summary, 200, 260);
    assert_string_equal(verdict(&base, &other), "REGRESSION");
    assert_string_equal(verdict(&other, &base), "IMPROVEMENT");
    json_decref(base.summary);
    json_decref(other.summary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if COUNTS
        cmocka_unit_test(equal_runs_are_no_change),
        cmocka_unit_test(intervals_cover_the_truth),
        cmocka_unit_test(a_true_change_is_found),
        cmocka_unit_test(noise_at_the_threshold_is_undecided),
        cmocka_unit_test(predicted_steps_decide),
#endif
        cmocka_unit_test(the_same_input_gives_the_same_interval),
        cmocka_unit_test(blocks_follow_the_dependence),
        cmocka_unit_test(edges),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(thinning_keeps_periodic_steps),
        cmocka_unit_test(more_steps_decide),
        cmocka_unit_test(time_and_memory_decide),
        cmocka_unit_test(incomparable_runs_are_inconclusive),
        cmocka_unit_test(the_loader_waited_for_is_compared),
        cmocka_unit_test(each_difference_makes_runs_incomparable),
        cmocka_unit_test(gpu_utilization_is_shown),
        cmocka_unit_test(other_devices_are_a_note),
        cmocka_unit_test(without_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
