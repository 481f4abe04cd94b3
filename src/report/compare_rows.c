/* compare_rows.c: the table of a comparison: the figures of both runs.
 *
 * The figures are from the two summaries; where the steps of both runs are stored, the change of a
 * time has an interval. Only the step time and memory decide (compare.c); the other rows explain a
 * change.
 */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The verdict depends on the step time, which uses RATIO_MOST_STEPS. Fewer steps are enough for
 * phases, and keep a comparison below a second for runs of any length. */
enum { MOST_PHASE_STEPS = 1024 };

/* A change of memory counts when it exceeds the variation of an allocator: 64 MiB, and 5 % on a GPU
 * (as for MEMORY CREEP) or 10 % of RSS, which depends on the time of sampling. */
static const double least_memory_bytes = 64.0 * 1024 * 1024;

/* A phase below this share of both steps is shown but not judged. */
static const double least_phase_share = 0.01;

static const char *change_text(enum change change)
{
    static const char *const names[] = {"unclear", "same", "worse", "better"};
    return names[change];
}

static json_t *row(const char *name, const char *unit, double before, double after,
                   const struct ratio *r, const char *judged)
{
    double change = r && isfinite(r->ratio) ? r->ratio - 1 : after / before - 1;
    if (!(fabs(before) > 0) || !isfinite(after))
        change = NAN;
    return json_pack("{ss ss so so so so so so}", "name", name, "unit", unit, "before",
                     json_number_or_null(before), "after", json_number_or_null(after), "change",
                     json_number_or_null(change), "low", json_number_or_null(r ? r->low - 1 : NAN),
                     "high", json_number_or_null(r ? r->high - 1 : NAN), "judged",
                     json_text_or_null(judged));
}

/* Appends unless neither run has the figure. Returns 0 or -1 when out of memory. */
static int add_row(json_t *rows, const char *name, const char *unit, double before, double after)
{
    if (!isfinite(before) && !isfinite(after))
        return 0;
    return json_array_append_new(rows, row(name, unit, before, after, NULL, NULL));
}

static double figure(const json_t *summary, const char *path)
{
    return json_find_number(summary, path, NAN);
}

static int series_ratio(const double *before, size_t before_count, const double *after,
                        size_t after_count, size_t most, struct ratio *ret)
{
    *ret = (struct ratio){NAN, NAN, NAN, 0, 0, 1, 1};
    if (!before || !after)
        return 0;
    return ratio_of_medians(before, before_count, after, after_count, most, ret);
}

static int add_step_time(json_t *rows, const json_t *before, const struct step_series *b,
                         const json_t *after, const struct step_series *a, double threshold,
                         struct ratio *ret_time)
{
    if (series_ratio(b->wall, b->count, a->wall, a->count, RATIO_MOST_STEPS, ret_time) < 0)
        return -1;
    const char *judged =
        isfinite(ret_time->low) ? change_text(ratio_judge(ret_time, threshold)) : NULL;
    return json_array_append_new(rows, row("step time", "ms", figure(before, "step_time.median"),
                                           figure(after, "step_time.median"), ret_time, judged));
}

static int add_phase(json_t *rows, const json_t *before, const struct step_series *b,
                     const json_t *after, const struct step_series *a, int phase, double threshold)
{
    char median[64], share[64];
    snprintf(median, sizeof median, "step_time.phases.%s.median", leat_phase_names[phase]);
    snprintf(share, sizeof share, "step_time.phases.%s.share", leat_phase_names[phase]);
    double x = figure(before, median), y = figure(after, median);
    if (!isfinite(x) && !isfinite(y))
        return 0;
    struct ratio r;
    if (series_ratio(b->phase[phase], b->count, a->phase[phase], a->count, MOST_PHASE_STEPS, &r) <
        0)
        return -1;
    int matters =
        figure(before, share) >= least_phase_share || figure(after, share) >= least_phase_share;
    const char *judged =
        isfinite(r.low) && matters ? change_text(ratio_judge(&r, threshold)) : NULL;
    return json_array_append_new(rows, row(leat_phase_names[phase], "ms", x, y, &r, judged));
}

/* The worst rank of a figure in memory.ranks; `in_gpus`: the worst of its GPUs. */
static double memory_peak(const json_t *summary, const char *key, int in_gpus)
{
    json_t *ranks = (json_t *)json_find(summary, "memory.ranks"), *rank, *gpu;
    const char *name;
    size_t i;
    double worst = NAN;
    json_object_foreach (ranks, name, rank) {
        double value = in_gpus ? NAN : figure(rank, key);
        json_array_foreach (json_object_get(rank, "gpus"), i, gpu)
            if (in_gpus)
                value = fmax(value, figure(gpu, key)); /* fmax skips NaN */
        worst = fmax(worst, value);
    }
    return worst;
}

static enum change judge_memory(double before, double after, double least_ratio)
{
    if (!(before > 0) || !isfinite(after))
        return CHANGE_UNCLEAR;
    if (fabs(after - before) < least_memory_bytes || fabs(after / before - 1) < least_ratio)
        return CHANGE_SAME;
    return after > before ? CHANGE_WORSE : CHANGE_BETTER;
}

/* The memory of workers is shown but not judged: more workers are a remedy for slow input. */
static int add_memory(json_t *rows, const json_t *before, const json_t *after,
                      enum change *ret_memory)
{
    double gpu_before = memory_peak(before, "reserved_peak_bytes", 1);
    double gpu_after = memory_peak(after, "reserved_peak_bytes", 1);
    double rss_before = memory_peak(before, "rss_peak_bytes", 0);
    double rss_after = memory_peak(after, "rss_peak_bytes", 0);
    enum change gpu = judge_memory(gpu_before, gpu_after, 0.05);
    enum change rss = judge_memory(rss_before, rss_after, 0.10);
    *ret_memory = gpu != CHANGE_UNCLEAR ? gpu : rss;
    int bad = 0;
    if (isfinite(gpu_before) || isfinite(gpu_after))
        bad |= json_array_append_new(
            rows, row("GPU memory", "bytes", gpu_before, gpu_after, NULL, change_text(gpu)));
    if (isfinite(rss_before) || isfinite(rss_after))
        bad |= json_array_append_new(rows, row("rank memory", "bytes", rss_before, rss_after, NULL,
                                               gpu == CHANGE_UNCLEAR ? change_text(rss) : NULL));
    bad |= add_row(rows, "worker memory", "bytes", memory_peak(before, "workers_rss_peak_bytes", 0),
                   memory_peak(after, "workers_rss_peak_bytes", 0));
    return bad;
}

/* Mean over the GPUs of the run. */
static double gpu_utilization(const json_t *summary)
{
    const json_t *gpu;
    double sum = 0;
    size_t i, n = 0;
    json_array_foreach (json_find(summary, "system.gpus"), i, gpu) {
        double busy = figure(gpu, "utilization.mean");
        if (isfinite(busy)) {
            sum += busy;
            n++;
        }
    }
    return n ? sum / (double)n : NAN;
}

json_t *compare_rows(const json_t *before, const struct step_series *before_steps,
                     const json_t *after, const struct step_series *after_steps, double threshold,
                     struct ratio *ret_time, enum change *ret_memory)
{
    json_t *rows = json_array();
    int bad = !rows;
    bad = bad ||
          add_step_time(rows, before, before_steps, after, after_steps, threshold, ret_time) < 0;
    for (int phase = 0; !bad && phase < PHASES; phase++)
        bad = add_phase(rows, before, before_steps, after, after_steps, phase, threshold) < 0;
    bad = bad || add_row(rows, "samples/s", "1/s", figure(before, "step_time.samples_per_s"),
                         figure(after, "step_time.samples_per_s")) < 0;
    bad = bad || add_memory(rows, before, after, ret_memory) < 0;
    bad = bad ||
          add_row(rows, "GPU busy", "ratio", gpu_utilization(before), gpu_utilization(after)) < 0;
    bad = bad || add_row(rows, "CPU busy", "ratio", figure(before, "system.cpu.mean"),
                         figure(after, "system.cpu.mean")) < 0;
    if (bad) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}
