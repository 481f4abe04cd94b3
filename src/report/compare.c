/* compare.c: compares two runs: is the second faster, slower or the same?
 *
 *     two summaries ─┬─► are they comparable? ──────────────► printed first
 *     two run.db ────┴─► rows (compare_rows.c), of them the step time with its interval
 *                          └─► time and memory ─► REGRESSION, IMPROVEMENT, MIXED, EQUIVALENT, or
 *                                                 INCONCLUSIVE with what would decide it
 *
 * A change counts when the interval excludes 1 and its size reaches the threshold. Runs are the
 * same when the whole interval lies within the threshold. Everything else is INCONCLUSIVE: a true
 * change near the threshold may stay undecided, but noise alone cannot make equal runs a
 * regression.
 *
 * Without run.db there are no steps and no interval; then only runs whose step times hardly overlap
 * are distinguished (separated_by_tail).
 */
#include "report/compare.h"
#include "report/summary_parts.h"
#include "report/text_layout.h"
#include "report/report.h"

#include "base/mem.h"
#include "base/path.h"
#include "facts/facts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the steps of a run ---------------------------------------------------------------------- */

static double *copy_values(const double *from, size_t n)
{
    double *copy = from ? mem_alloc_array(n + 1, sizeof *copy) : NULL;
    if (copy)
        memcpy(copy, from, n * sizeof *copy);
    return copy;
}

/* Old steps of a very long run are folded into means, between outliers that are kept: not a random
 * sample. The steps after the last folded row are. */
static size_t first_whole(const struct rank_facts *rank)
{
    size_t first = rank->count;
    while (first > 0 && !(rank->weight[first - 1] > 1))
        first--;
    return first;
}

static void series_from_facts(const struct facts *facts, struct step_series *series)
{
    if (facts->typical < 0 || (size_t)facts->typical >= facts->rank_count) {
        snprintf(series->note, sizeof series->note, "its run.db has no steps");
        return;
    }
    const struct rank_facts *rank = &facts->ranks[facts->typical];
    size_t first = first_whole(rank), count = rank->count - first;
    if (count == 0) {
        snprintf(series->note, sizeof series->note, "its run.db has no kept steps");
        return;
    }
    if (first > 0)
        snprintf(series->note, sizeof series->note,
                 "only its last %zu steps are stored one by one and used", count);
    series->wall = copy_values(rank->wall_ms + first, count);
    for (int phase = 0; phase < PHASES; phase++)
        if (rank->phase_ms[phase])
            series->phase[phase] = copy_values(rank->phase_ms[phase] + first, count);
    series->count = series->wall ? count : 0;
}

static int same_run(const struct facts *facts, const json_t *summary)
{
    return strcmp(facts->run_name, json_find_text(summary, "run.name", "")) == 0 &&
           strcmp(facts->started_at, json_find_text(summary, "run.started_at", "")) == 0;
}

static void step_series_load(const char *database, const json_t *summary,
                             struct step_series *ret_series)
{
    struct store_reader *reader = NULL;
    struct facts *facts = NULL;
    struct leat_err err = {""};
    *ret_series = (struct step_series){0};
    if (!path_exists(database)) {
        snprintf(ret_series->note, sizeof ret_series->note,
                 "there is no run.db beside its summary");
        return;
    }
    if (store_reader_open(database, &reader, &err) < 0 || facts_load(reader, &facts, &err) < 0)
        snprintf(ret_series->note, sizeof ret_series->note, "its run.db cannot be used (%.300s)",
                 err.text);
    else if (!same_run(facts, summary))
        snprintf(ret_series->note, sizeof ret_series->note,
                 "the run.db beside its summary is of another run");
    else
        series_from_facts(facts, ret_series);
    facts_free(facts);
    store_reader_close(reader);
}

static void step_series_done(struct step_series *series)
{
    mem_free(series->wall);
    for (int phase = 0; phase < PHASES; phase++)
        mem_free(series->phase[phase]);
    *series = (struct step_series){0};
}

/* ---- judging --------------------------------------------------------------------------------- */

enum change ratio_judge(const struct ratio *r, double threshold)
{
    if (!isfinite(r->low) || !isfinite(r->high))
        return CHANGE_UNCLEAR;
    if (r->low > 1 && r->ratio >= 1 + threshold)
        return CHANGE_WORSE;
    if (r->high < 1 && r->ratio <= 1 - threshold)
        return CHANGE_BETTER;
    if (r->low >= 1 - threshold && r->high <= 1 + threshold)
        return CHANGE_SAME;
    return CHANGE_UNCLEAR;
}

int64_t ratio_more_steps(const struct ratio *r, double threshold)
{
    /* With just enough steps for the present median, half of all repetitions decide, because the
     * new median may lie on either side. With twice the steps four of five do, the usual power of a
     * trial. */
    const double odds = 2;
    double change = fabs(r->ratio - 1), width = (r->high - r->low) / 2;
    double n = (double)(r->n_before < r->n_after ? r->n_before : r->n_after);
    /* A change above the threshold is decided when the interval excludes 1, a smaller one when the
     * interval fits within the threshold. */
    double distance = change >= threshold ? change : threshold - change;
    double need = n * (width / distance) * (width / distance) * odds;
    if (!(need <= RATIO_MOST_STEPS)) /* more steps are not used */
        return -1;
    return need > n ? (int64_t)ceil(need - n) : 1;
}

/* Without an interval: half of the steps of one run took longer than 99 % of the other's. */
static enum change separated_by_tail(const json_t *before, const json_t *after, double threshold)
{
    double b = json_find_number(before, "step_time.median", NAN);
    double b_tail = json_find_number(before, "step_time.p99", NAN);
    double a = json_find_number(after, "step_time.median", NAN);
    double a_tail = json_find_number(after, "step_time.p99", NAN);
    const double least_steps = 20;
    if (!(json_find_number(before, "step_time.kept_steps", 0) >= least_steps) ||
        !(json_find_number(after, "step_time.kept_steps", 0) >= least_steps))
        return CHANGE_UNCLEAR;
    if (a > b_tail && a >= b * (1 + threshold))
        return CHANGE_WORSE;
    if (b > a_tail && a <= b * (1 - threshold))
        return CHANGE_BETTER;
    return CHANGE_UNCLEAR;
}

/* ---- are they comparable? -------------------------------------------------------------------- */

static void differ(json_t *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void differ(json_t *list, const char *fmt, ...)
{
    char text[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(list, json_text_or_null(text));
}

/* Adds a line when both numbers are known and differ. */
static void differ_number(json_t *list, const char *what, double before, double after)
{
    if (isfinite(before) && isfinite(after) && before != after)
        differ(list, "%s: %.6g before, %.6g after", what, before, after);
}

static void differ_text(json_t *list, const char *what, const char *before, const char *after)
{
    if (before && after && strcmp(before, after) != 0)
        differ(list, "%s: %.90s before, %.90s after", what, before, after);
}

/* Batches per step (gradient accumulation). */
static double batches_per_step(const json_t *summary)
{
    double batches = json_find_number(summary, "step_time.micro_steps", NAN);
    double kept = json_find_number(summary, "step_time.kept_steps", NAN);
    return batches > 0 && kept > 0 ? fmax(1, round(batches / kept)) : NAN;
}

/* Properties that make the steps of the runs incomparable. */
static json_t *find_differences(const json_t *before, const json_t *after)
{
    json_t *list = json_array();
    const json_t *b = summary_main_loader(before), *a = summary_main_loader(after);
    differ_number(list, "batch size", json_find_number(b, "batch_size", NAN),
                  json_find_number(a, "batch_size", NAN));
    differ_number(list, "batches per step", batches_per_step(before), batches_per_step(after));
    differ_number(list, "world size", json_find_number(before, "run.world_size", NAN),
                  json_find_number(after, "run.world_size", NAN));
    differ_number(list, "dataset length", json_find_number(b, "dataset_length", NAN),
                  json_find_number(a, "dataset_length", NAN));
    differ_text(list, "kind of steps", json_find_text(before, "step_time.kind", NULL),
                json_find_text(after, "step_time.kind", NULL));
    const json_t *gpus = json_find(before, "run.devices"),
                 *others = json_find(after, "run.devices");
    if (json_is_array(gpus) && json_is_array(others))
        differ_number(list, "GPUs", (double)json_array_size(gpus), (double)json_array_size(others));
    double capacity = json_find_number(json_array_get(json_find(before, "system.gpus"), 0),
                                       "memory_total_bytes", NAN);
    double other = json_find_number(json_array_get(json_find(after, "system.gpus"), 0),
                                    "memory_total_bytes", NAN);
    if (isfinite(capacity) && isfinite(other) && capacity != other)
        differ(list, "GPU model: %.0f MiB of memory before, %.0f MiB after", capacity / 1048576,
               other / 1048576);
    return list;
}

/* Differences that matter to a reader but do not make the runs incomparable. */
static json_t *find_notes(const json_t *before, const struct step_series *b, const json_t *after,
                          const struct step_series *a)
{
    json_t *list = json_array();
    const json_t *x = summary_main_loader(before), *y = summary_main_loader(after);
    const char *started = json_find_text(before, "run.started_at", NULL);
    if (started && strcmp(started, json_find_text(after, "run.started_at", "")) == 0 &&
        strcmp(json_find_text(before, "run.name", ""), json_find_text(after, "run.name", "")) == 0)
        differ(list, "both are the same run");
    differ_text(list, "dataset", json_find_text(x, "dataset", NULL),
                json_find_text(y, "dataset", NULL));
    differ_number(list, "num_workers", json_find_number(x, "num_workers", NAN),
                  json_find_number(y, "num_workers", NAN));
    differ_text(list, "node", json_find_text(before, "run.node", NULL),
                json_find_text(after, "run.node", NULL));
    const json_t *gpus = json_find(before, "run.devices"),
                 *others = json_find(after, "run.devices");
    if (json_array_size(gpus) > 0 && json_array_size(gpus) == json_array_size(others) &&
        !json_equal(gpus, others))
        differ(list, "the runs used different GPUs; models are distinguished by their memory only");
    differ_number(list, "CPU cores", json_find_number(before, "system.cpus", NAN),
                  json_find_number(after, "system.cpus", NAN));
    differ_text(list, "torch", json_find_text(before, "run.torch", NULL),
                json_find_text(after, "run.torch", NULL));
    static const char *const sides[] = {"before", "after"};
    const json_t *summaries[] = {before, after};
    const struct step_series *series[] = {b, a};
    for (int i = 0; i < 2; i++) {
        const char *ended = json_find_text(summaries[i], "run.ended", NULL);
        if (ended && strcmp(ended, "completed") != 0)
            differ(list, "the run %s did not complete: %.40s", sides[i], ended);
        if (*series[i]->note)
            differ(list, "the run %s: %.250s", sides[i], series[i]->note);
    }
    return list;
}

/* ---- the answer ------------------------------------------------------------------------------ */

struct answer {
    const char *kind;
    char summary[400], action[300];
    int64_t more_steps; /* -1: not known or not needed */
};

static enum change overall(enum change time, enum change memory)
{
    if (time == CHANGE_UNCLEAR || memory == CHANGE_UNCLEAR || memory == CHANGE_SAME)
        return time;
    return time == CHANGE_SAME ? memory : time;
}

static void describe_interval(char *text, size_t size, const struct ratio *r, double before,
                              double after)
{
    char change[LAYOUT_CELL], low[LAYOUT_CELL], high[LAYOUT_CELL];
    if (isfinite(r->low))
        snprintf(text, size, "The median step changed by %s (95 %% interval %s to %s)",
                 layout_change(r->ratio - 1, change), layout_change(r->low - 1, low),
                 layout_change(r->high - 1, high));
    else if (before > 0 && isfinite(after))
        snprintf(text, size, "The median step changed by %s, without an interval",
                 layout_change(after / before - 1, change));
    else
        snprintf(text, size, "The step times of the two runs are not both known");
}

static void conclude(struct answer *answer, enum change time, enum change memory,
                     const struct ratio *r, const char *interval, double threshold)
{
    static const char *const memory_words[] = {[CHANGE_UNCLEAR] = "",
                                               [CHANGE_SAME] = "",
                                               [CHANGE_WORSE] = ", and memory grew",
                                               [CHANGE_BETTER] = ", and memory shrank"};
    int disagree = (time == CHANGE_WORSE && memory == CHANGE_BETTER) ||
                   (time == CHANGE_BETTER && memory == CHANGE_WORSE);
    enum change total = overall(time, memory);
    answer->kind = disagree                 ? "MIXED"
                   : total == CHANGE_WORSE  ? "REGRESSION"
                   : total == CHANGE_BETTER ? "IMPROVEMENT"
                   : total == CHANGE_SAME   ? "EQUIVALENT"
                                            : "INCONCLUSIVE";
    if (disagree)
        snprintf(answer->summary, sizeof answer->summary, "%s, but memory %s.", interval,
                 memory == CHANGE_WORSE ? "grew" : "shrank");
    else if (total == CHANGE_SAME)
        snprintf(answer->summary, sizeof answer->summary, "%s: within the threshold of %.3g %%.",
                 interval, threshold * 100);
    else
        snprintf(answer->summary, sizeof answer->summary, "%s%s.", interval, memory_words[memory]);
    if (total != CHANGE_UNCLEAR)
        return;
    if (!isfinite(r->low)) {
        snprintf(answer->action, sizeof answer->action,
                 "Compare runs that have their run.db and at least %d steps each.",
                 RATIO_LEAST_STEPS);
        return;
    }
    answer->more_steps = ratio_more_steps(r, threshold);
    if (answer->more_steps < 0)
        snprintf(
            answer->action, sizeof answer->action,
            "The change is so close to the threshold of %.3g %%, or steps vary so much, that more "
            "steps would hardly decide it; choose another --threshold.",
            threshold * 100);
    else
        snprintf(answer->action, sizeof answer->action,
                 "About %lld more steps in each run would decide it, if the change stays as it is "
                 "now.",
                 (long long)answer->more_steps);
}

/* The rows stay, but none is judged. */
static void refuse(struct answer *answer, const json_t *differences, json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach (rows, i, row)
        json_object_set_new(row, "judged", json_null());
    const char *first = json_string_value(json_array_get(differences, 0));
    answer->kind = "INCONCLUSIVE";
    snprintf(answer->summary, sizeof answer->summary, "The runs are not comparable (%s).",
             first ? first : "they differ");
    snprintf(answer->action, sizeof answer->action,
             "Repeat one of the runs with the settings of the other.");
}

static json_t *side(const char *run, const json_t *summary, const struct step_series *steps)
{
    return json_pack(
        "{so so so so so so so}", "run", json_text_or_null(run), "name",
        json_text_or_null(json_find_text(summary, "run.name", NULL)), "verdict",
        json_text_or_null(json_find_text(summary, "verdict.kind", NULL)), "label",
        json_text_or_null(json_find_text(summary, "verdict.label", NULL)), "severity",
        json_text_or_null(json_find_text(summary, "verdict.severity", NULL)), "kept_steps",
        json_number_or_null(json_find_number(summary, "step_time.kept_steps", NAN)), "steps_used",
        steps->wall ? json_integer((json_int_t)steps->count) : json_null());
}

static json_t *basis(const struct ratio *r)
{
    if (!isfinite(r->low))
        return json_pack("{ss sn sn sn sn sn}", "method", "summaries", "resamples", "values_before",
                         "values_after", "block_before", "block_after");
    return json_pack("{ss si sI sI sI sI}", "method", "block bootstrap of the ratio of medians",
                     "resamples", RATIO_RESAMPLES, "values_before", (json_int_t)r->n_before,
                     "values_after", (json_int_t)r->n_after, "block_before",
                     (json_int_t)r->block_before, "block_after", (json_int_t)r->block_after);
}

int compare_summaries(const char *before_run, const json_t *before,
                      const struct step_series *before_steps, const char *after_run,
                      const json_t *after, const struct step_series *after_steps, double threshold,
                      json_t **ret_result, struct leat_err *err)
{
    struct ratio r = {NAN, NAN, NAN, 0, 0, 1, 1};
    enum change memory = CHANGE_UNCLEAR;
    struct answer answer = {.more_steps = -1};
    char interval[200];
    json_t *rows = compare_rows(before, before_steps, after, after_steps, threshold, &r, &memory);
    json_t *differences = find_differences(before, after);
    enum change time =
        isfinite(r.low) ? ratio_judge(&r, threshold) : separated_by_tail(before, after, threshold);
    describe_interval(interval, sizeof interval, &r,
                      json_find_number(before, "step_time.median", NAN),
                      json_find_number(after, "step_time.median", NAN));
    if (json_array_size(differences) > 0)
        refuse(&answer, differences, rows);
    else
        conclude(&answer, time, memory, &r, interval, threshold);
    json_t *result = json_pack(
        "{ss sb so so s{ss ss so so so} so so so so so so}", "schema_version", SUMMARY_SCHEMA,
        "comparable", json_array_size(differences) == 0, "differences", differences, "notes",
        find_notes(before, before_steps, after, after_steps), "verdict", "kind", answer.kind,
        "label", answer.kind, "summary", json_text_or_null(answer.summary), "action",
        json_text_or_null(*answer.action ? answer.action : NULL), "more_steps",
        answer.more_steps < 0 ? json_null() : json_integer(answer.more_steps), "threshold",
        json_number_or_null(threshold), "basis", basis(&r), "before",
        side(before_run, before, before_steps), "after", side(after_run, after, after_steps),
        "rows", rows, "prediction",
        compare_prediction(before, summary_main_loader(before), after, summary_main_loader(after)));
    if (!result)
        return err_set(err, -ENOMEM, "Out of memory while comparing.");
    *ret_result = result;
    return 0;
}

/* ---- from the names of two runs -------------------------------------------------------------- */

static int load_side(const char *run, json_t **ret_summary, struct step_series *ret_series,
                     struct leat_err *err)
{
    char *file = NULL;
    int result = summary_locate(run, &file, err);
    if (result == 0)
        result = summary_read(file, ret_summary, err);
    if (result == 0) {
        char *folder = mem_strdup(strchr(file, '/') ? file : "./");
        if (folder)
            *strrchr(folder, '/') = 0;
        char *database = folder ? path_join(*folder ? folder : "/", "run.db", NULL) : NULL;
        if (database)
            step_series_load(database, *ret_summary, ret_series);
        else
            result = err_set(err, -ENOMEM, "Out of memory while reading %s.", file);
        mem_free(database);
        mem_free(folder);
    }
    mem_free(file);
    return result;
}

int compare_runs(const char *before, const char *after, double threshold, json_t **ret_result,
                 struct leat_err *err)
{
    json_t *first = NULL, *second = NULL;
    struct step_series first_steps = {0}, second_steps = {0};
    int result = load_side(before, &first, &first_steps, err);
    if (result == 0)
        result = load_side(after, &second, &second_steps, err);
    if (result == 0)
        result = compare_summaries(before, first, &first_steps, after, second, &second_steps,
                                   threshold, ret_result, err);
    step_series_done(&first_steps);
    step_series_done(&second_steps);
    json_decref(first);
    json_decref(second);
    return result;
}
