/* search.c: which settings to measure next.
 *
 * Not a grid. Four facts keep it short:
 *   - the model of cost says where the CPUs are used up (the knee): the climb starts there;
 *   - the rate over the number of workers has one top, so a side of the best that has fallen is
 *     not followed further;
 *   - what the bound of the model excludes is not measured;
 *   - prefetch and pinning change little of the order of worker counts: each is tried at the best.
 *
 * The search keeps no state: every call looks at the rows so far and finds the first question that
 * is still open. A row that failed counts as one with rate 0.
 *
 *     1 the user's own settings          5 pin_memory, where there is an accelerator
 *     2 the knee                         6 the batch sizes asked for
 *     3 up and down from the best        7 the first two once more, when they are close
 *     4 prefetch 4, 8 while it gains     8 persistent_workers, when starting is worth saving
 */
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int ladder[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, TUNE_MOST_WORKERS};
enum { RUNGS = sizeof ladder / sizeof *ladder };

/* A setting other than torch's default must gain this much, twice the noise of a known rate would
 * be more than the settings are worth. */
#define WORTH_RATIO TUNE_SAME
/* Rows this close are measured once more before one is called the best. */
#define CLOSE_RATIO 0.06
/* Starting workers for each epoch is worth avoiding when it takes this share of one. */
#define START_RATIO 0.01

void tune_result_init(struct tune_result *result)
{
    memset(result, 0, sizeof *result);
    result->best = result->now = -1;
    result->cached_rate = result->step_s = result->step_samples = NAN;
    struct tune_facts *f = &result->facts;
    f->sample_mean_s = f->sample_p99_s = f->sample_cpu_s = NAN;
    f->dataset_length = f->epoch_batches = f->batch_bytes = -1;
    f->local_ranks = 1;
}

void tune_result_done(struct tune_result *result)
{
    json_decref(result->facts.call);
    result->facts.call = NULL;
}

int tune_config_same(const struct tune_config *a, const struct tune_config *b)
{
    return a->workers == b->workers && a->prefetch == b->prefetch && a->pin == b->pin &&
           a->batch_size == b->batch_size;
}

struct tune_row *tune_find(struct tune_result *result, const struct tune_config *config)
{
    for (size_t i = 0; i < result->row_count; i++)
        if (tune_config_same(&result->rows[i].config, config))
            return &result->rows[i];
    return NULL;
}

/* ---- what a row is worth --------------------------------------------------------------------- */

double tune_score(const struct tune_facts *facts, const struct tune_row *row, int persistent)
{
    if (row->status != TUNE_OK || !(row->rate > 0))
        return 0;
    int workers = row->config.workers;
    int64_t size = row->config.batch_size > 0 ? row->config.batch_size : facts->now.batch_size;
    double per_batch = size > 0 ? (double)size : (double)row->samples / (double)row->batches;
    double samples = (double)facts->epoch_batches *
                     (facts->now.batch_size > 0 ? (double)facts->now.batch_size : per_batch);
    if (facts->epoch_batches <= 0 || workers == 0 || persistent || !(row->first_round_s > 0))
        return row->rate;
    /* An epoch is its first round, with the start of the workers, and the rest at the rate. */
    double first = fmin(samples, workers * per_batch);
    return samples / (row->first_round_s + (samples - first) / row->rate);
}

/* Workers can always be kept, so rows are compared as if they were. */
static double score(const struct tune_result *result, size_t i)
{
    return tune_score(&result->facts, &result->rows[i], 1);
}

static int simpler(const struct tune_config *a, const struct tune_config *b)
{
    if (a->workers != b->workers)
        return a->workers < b->workers;
    if (a->prefetch != b->prefetch)
        return a->prefetch < b->prefetch;
    return a->pin < b->pin;
}

static double top_score(const struct tune_result *result)
{
    double top = 0;
    for (size_t i = 0; i < result->row_count; i++)
        top = fmax(top, score(result, i));
    return top;
}

int tune_best(const struct tune_result *result)
{
    double top = top_score(result);
    int best = -1;
    for (size_t i = 0; i < result->row_count && top > 0; i++)
        if (score(result, i) >= top * (1 - TUNE_SAME) &&
            (best < 0 || simpler(&result->rows[i].config, &result->rows[best].config)))
            best = (int)i;
    return best;
}

/* ---- the questions --------------------------------------------------------------------------- */

/* 1 when these settings are still to be measured. Those that do not fit are noted as skipped. */
static int open_question(struct tune_result *result, const struct tune_config *config,
                         struct tune_config *ret_config)
{
    struct leat_err err = {""};
    if (tune_find(result, config) || result->row_count >= TUNE_ROWS)
        return 0;
    if (cost_fits(result, config, &err) < 0) {
        struct tune_row *row = &result->rows[result->row_count++];
        *row = (struct tune_row){.config = *config,
                                 .status = TUNE_SKIPPED,
                                 .rate = NAN,
                                 .spread_ratio = NAN,
                                 .first_batch_s = NAN,
                                 .first_round_s = NAN,
                                 .restart_s = NAN,
                                 .memory_bytes = -1};
        snprintf(row->error, sizeof row->error, "%.190s", err.text);
        return 0;
    }
    *ret_config = *config;
    return 1;
}

static struct tune_config with_workers(const struct tune_result *result, int workers)
{
    struct tune_config config = result->facts.now;
    config.workers = workers;
    config.prefetch = workers ? TUNE_PREFETCH : 0;
    config.persistent = 0;
    return config;
}

static int rung_of(int workers)
{
    int rung = 0;
    while (rung + 1 < RUNGS && ladder[rung + 1] <= workers)
        rung++;
    return rung;
}

/* Without a sample that could be timed, nothing is known: the climb begins at one worker a CPU. */
static int ask_knee(struct tune_result *result, struct tune_config *ret_config)
{
    int rung = rung_of(cost_knee(result));
    struct tune_config config = with_workers(result, ladder[rung > 0 ? rung : 1]);
    return open_question(result, &config, ret_config);
}

static int worth_measuring(const struct tune_result *result, int workers, double top)
{
    if (workers > result->limits.most_workers)
        return 0;
    return cost_upper_rate(result, workers) >= top * (1 - TUNE_SAME);
}

static int ask_neighbours(struct tune_result *result, struct tune_config *ret_config)
{
    double top = top_score(result);
    int best = tune_best(result);
    if (best < 0) { /* nothing works: the plainest loader of all is the last to try */
        struct tune_config plain = with_workers(result, 0);
        return open_question(result, &plain, ret_config);
    }
    int rung = rung_of(result->rows[best].config.workers);
    const int sides[] = {rung + 1, rung, rung - 1};
    for (int i = 0; i < 3; i++) {
        if (sides[i] < 0 || sides[i] >= RUNGS || !worth_measuring(result, ladder[sides[i]], top))
            continue;
        struct tune_config config = with_workers(result, ladder[sides[i]]);
        if (open_question(result, &config, ret_config))
            return 1;
    }
    return 0;
}

static int ask_prefetch(struct tune_result *result, struct tune_config *ret_config)
{
    int best = tune_best(result);
    if (best < 0 || result->rows[best].config.workers == 0)
        return 0;
    struct tune_config config = result->rows[best].config;
    if (config.prefetch >= 8)
        return 0;
    config.prefetch = config.prefetch < 4 ? 4 : 8;
    return open_question(result, &config, ret_config);
}

static int ask_pin(struct tune_result *result, struct tune_config *ret_config)
{
    int best = tune_best(result);
    if (best < 0 || !result->facts.accelerator)
        return 0;
    struct tune_config config = result->rows[best].config;
    config.pin = !config.pin;
    return open_question(result, &config, ret_config);
}

static int ask_sizes(struct tune_result *result, struct tune_config *ret_config)
{
    int best = tune_best(result);
    for (int i = 0; best >= 0 && result->facts.can_batch && i < result->limits.size_count; i++) {
        struct tune_config config = result->rows[best].config;
        config.batch_size = result->limits.sizes[i];
        if (open_question(result, &config, ret_config))
            return 1;
    }
    return 0;
}

/* The best and the one after it decide the answer: when they are close, a second look at each. */
static int ask_again(struct tune_result *result, struct tune_config *ret_config)
{
    double top = top_score(result);
    int second = -1, best = -1;
    for (size_t i = 0; i < result->row_count; i++) {
        if (best < 0 || score(result, i) > score(result, best)) {
            second = best;
            best = (int)i;
        } else if (second < 0 || score(result, i) > score(result, second)) {
            second = (int)i;
        }
    }
    if (second < 0 || top <= 0 || score(result, second) < top * (1 - CLOSE_RATIO))
        return 0;
    for (int i = 0; i < 2; i++) {
        struct tune_row *row = &result->rows[i ? second : best];
        if (row->times < 2) {
            *ret_config = row->config;
            return 1;
        }
    }
    return 0;
}

int search_choice(const struct tune_result *result, struct tune_config *ret_config)
{
    int best = tune_best(result);
    if (best < 0)
        return -ENOENT;
    const struct tune_row *row = &result->rows[best];
    *ret_config = row->config;
    double kept = tune_score(&result->facts, row, 1), started = tune_score(&result->facts, row, 0);
    ret_config->persistent = row->config.workers > 0 && started < kept * (1 - START_RATIO);
    return 0;
}

static int ask_persistent(struct tune_result *result, struct tune_config *ret_config)
{
    struct tune_config config;
    if (search_choice(result, &config) < 0 || !config.persistent)
        return 0;
    const struct tune_row *row = tune_find(result, &config);
    if (!row || row->restart_s >= 0 || row->times >= 3)
        return 0;
    *ret_config = config;
    return 1;
}

static int only_failures(const struct tune_result *result)
{
    for (size_t i = 0; i < result->row_count; i++)
        if (result->rows[i].status != TUNE_FAILED)
            return 0;
    return result->row_count >= 3; /* its own settings, workers, none: it is the dataset */
}

int search_next(struct tune_result *result, struct tune_config *ret_config)
{
    if (only_failures(result))
        return 0;
    return open_question(result, &result->facts.now, ret_config) || ask_knee(result, ret_config) ||
           ask_neighbours(result, ret_config) || ask_prefetch(result, ret_config) ||
           ask_pin(result, ret_config) || ask_sizes(result, ret_config) ||
           ask_again(result, ret_config) || ask_persistent(result, ret_config);
}

/* Own settings, knee, two neighbours, prefetch, two again, persistent: eight rows are usual. */
int search_left(const struct tune_result *result)
{
    int usual = 8 + result->limits.size_count + result->facts.accelerator;
    int done = 0;
    for (size_t i = 0; i < result->row_count; i++)
        done += result->rows[i].times;
    return usual > done ? usual - done : 1;
}
