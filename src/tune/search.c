/* search.c: which settings to measure next.
 *
 * A grid of all settings would take too long. Four facts shorten the search:
 *   - the cost model (cost.c) gives the number of workers that use all CPUs (the knee): it starts
 * there;
 *   - the rate over the number of workers has one maximum: it does not continue past a decrease;
 *   - settings whose upper bound is below the best are not measured;
 *   - prefetch and pin_memory hardly change which number of workers is best: they are tried there.
 *
 * The search keeps no state: each call derives the first open question from the rows so far. A
 * failed row counts as rate 0.
 *
 *     1 the user's own settings          5 pin_memory, where there is an accelerator
 *     2 the knee                         6 the batch sizes asked for
 *     3 double and half of the best,     7 leat.DataLoader, where it can make the batches
 *       then between them                8 the best two again, when they are close
 *     4 prefetch 8; 4, if that gained    9 persistent_workers, when starting is slow
 *
 * Between 3 and 4, rows that contradict the cost model are measured again. 1 to 6 consider only
 * rows of torch's DataLoader.
 */
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* If twice the workers of the best reach this share of it, a number between may be better. */
#define FLAT_RATIO 0.9
/* The cost model leaves out collating and handing over: at most a third of the time. */
#define DOUBT_RATIO 0.66
/* Rows this close are measured again before one is chosen. */
#define CLOSE_RATIO 0.06
/* Batches ahead per worker: enough for nearly all variation of batch times, and half of it. */
enum { PREFETCH_MOST = 8, PREFETCH_SOME = 4 };
/* persistent_workers are recommended when starting workers takes this share of an epoch. */
#define START_RATIO 0.01

void tune_result_init(struct tune_result *result)
{
    memset(result, 0, sizeof *result);
    result->best = result->now = -1;
    result->cached_rate = result->step_s = result->step_samples = NAN;
    result->others_cpus = result->all_cpus = NAN;
    struct tune_facts *f = &result->facts;
    f->sample_mean_s = f->sample_p99_s = f->sample_calm_s = f->sample_cpu_s = NAN;
    f->dataset_length = f->epoch_batches = f->batch_bytes = f->copy_bytes = -1;
    f->non_blocking = -1;
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
           a->batch_size == b->batch_size && a->leat == b->leat;
}

struct tune_row *tune_find(struct tune_result *result, const struct tune_config *config)
{
    for (size_t i = 0; i < result->row_count; i++)
        if (tune_config_same(&result->rows[i].config, config))
            return &result->rows[i];
    return NULL;
}

/* ---- the score of a row --------------------------------------------------------------------- */

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
    /* An epoch: the first round with the start of the workers, then the rest at the rate. */
    double first = fmin(samples, workers * per_batch);
    return samples / (row->first_round_s + (samples - first) / row->rate);
}

/* Rows are compared as with persistent_workers, which are always possible. */
static double score(const struct tune_result *result, size_t i)
{
    return tune_score(&result->facts, &result->rows[i], 1);
}

static int simpler(const struct tune_config *a, const struct tune_config *b)
{
    if (a->leat != b->leat) /* torch's loader needs no change of the import */
        return a->leat < b->leat;
    if (a->workers != b->workers)
        return a->workers < b->workers;
    if (a->prefetch != b->prefetch)
        return a->prefetch < b->prefetch;
    return a->pin < b->pin;
}

/* The score of row i; with `torch_only`, 0 unless it is of torch's DataLoader. */
static double score_of(const struct tune_result *result, size_t i, int torch_only)
{
    return torch_only && result->rows[i].config.leat ? 0 : score(result, i);
}

static double top_score(const struct tune_result *result, int torch_only)
{
    double top = 0;
    for (size_t i = 0; i < result->row_count; i++)
        top = fmax(top, score_of(result, i, torch_only));
    return top;
}

static int best_of(const struct tune_result *result, int torch_only)
{
    double top = top_score(result, torch_only), same = TUNE_SAME;
    int best = -1;
    for (size_t i = 0; i < result->row_count; i++)
        if (score_of(result, i, torch_only) == top && result->rows[i].spread_ratio > same)
            same = fmin(result->rows[i].spread_ratio, TUNE_SAME_MOST);
    for (size_t i = 0; i < result->row_count && top > 0; i++)
        if (score_of(result, i, torch_only) >= top * (1 - same) &&
            (best < 0 || simpler(&result->rows[i].config, &result->rows[best].config)))
            best = (int)i;
    return best;
}

int tune_best(const struct tune_result *result)
{
    return best_of(result, 0);
}

/* ---- the questions --------------------------------------------------------------------------- */

/* 1 when these settings are to be measured. Those that exceed the limits become skipped rows. */
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
    config.persistent = config.leat = 0;
    return config;
}

/* If no sample could be timed, the knee is one worker per CPU. Where that many exceed the limits or
 * fail, half of them are tried; after a second failure the dataset is assumed to be the cause. */
static int ask_knee(struct tune_result *result, struct tune_config *ret_config)
{
    int failures = 0;
    for (int workers = cost_knee(result); workers >= 1 && failures < 2; workers /= 2) {
        struct tune_config config = with_workers(result, workers);
        if (open_question(result, &config, ret_config))
            return 1;
        const struct tune_row *row = tune_find(result, &config);
        if (!row || row->status == TUNE_OK)
            return 0;
        failures += row->status == TUNE_FAILED;
    }
    return 0;
}

/* 1 when this number of workers could be the best, and is to be measured. */
static int ask_workers(struct tune_result *result, int workers, double top,
                       struct tune_config *ret_config)
{
    struct tune_config config = with_workers(result, workers);
    if (workers > cost_most_workers(result) ||
        cost_upper_rate(result, workers) < top * (1 - TUNE_SAME))
        return 0;
    return open_question(result, &config, ret_config);
}

static int ask_neighbours(struct tune_result *result, struct tune_config *ret_config)
{
    double top = top_score(result, 1);
    int best = best_of(result, 1);
    if (best < 0) /* nothing works: try without workers */
        return ask_workers(result, 0, 0, ret_config);
    int workers = result->rows[best].config.workers;
    /* One worker is no faster than none, so after none comes two. */
    return ask_workers(result, workers ? workers * 2 : 2, top, ret_config) ||
           ask_workers(result, workers, top, ret_config) ||
           ask_workers(result, workers / 2, top, ret_config);
}

static int ask_between(struct tune_result *result, struct tune_config *ret_config)
{
    double top = top_score(result, 1);
    int best = best_of(result, 1);
    if (best < 0 || result->rows[best].config.workers < 2)
        return 0;
    int workers = result->rows[best].config.workers;
    struct tune_config twice = with_workers(result, workers * 2);
    const struct tune_row *row = tune_find(result, &twice);
    if (!row || tune_score(&result->facts, row, 1) < FLAT_RATIO * top)
        return 0;
    return ask_workers(result, workers + workers / 2, top, ret_config);
}

/* The knee was slower than fewer workers, or all rows are far below the cost model's rate. Either
 * handing over is expensive, or other programs used the CPUs while the knee was measured. So the
 * knee is measured again, and in the second case twice its workers: on shared CPUs more processes
 * get a larger part. */
static int ask_doubt(struct tune_result *result, struct tune_config *ret_config)
{
    int knee = cost_knee(result), best = best_of(result, 1);
    int lost = best >= 0 && result->rows[best].config.workers < knee;
    int slow = top_score(result, 1) < DOUBT_RATIO * cost_expected_rate(result, knee);
    if (knee < 1 || (!lost && !slow))
        return 0;
    struct tune_config config = with_workers(result, knee);
    const struct tune_row *row = tune_find(result, &config);
    if (row && row->status == TUNE_OK && row->times < 2) {
        *ret_config = config;
        return 1;
    }
    return slow && ask_workers(result, knee * 2, 0, ret_config);
}

/* Tries the largest prefetch first: the gain of a smaller one can be less than the noise of two
 * rows. If the largest gains, the smaller one is tried too. */
static int ask_prefetch(struct tune_result *result, struct tune_config *ret_config)
{
    int best = best_of(result, 1);
    if (best < 0 || result->rows[best].config.workers == 0)
        return 0;
    struct tune_config most = result->rows[best].config, some = most;
    int gained = most.prefetch >= PREFETCH_MOST;
    if (most.prefetch > PREFETCH_MOST)
        return 0;
    most.prefetch = PREFETCH_MOST;
    some.prefetch = PREFETCH_SOME;
    if (open_question(result, &most, ret_config))
        return 1;
    const struct tune_row *row = tune_find(result, &most);
    int known = row && row->status == TUNE_OK;
    return (gained || !known) && open_question(result, &some, ret_config);
}

static int ask_pin(struct tune_result *result, struct tune_config *ret_config)
{
    int best = best_of(result, 1);
    if (best < 0 || !result->facts.accelerator)
        return 0;
    struct tune_config config = result->rows[best].config;
    config.pin = !config.pin;
    return open_question(result, &config, ret_config);
}

static int ask_sizes(struct tune_result *result, struct tune_config *ret_config)
{
    int best = best_of(result, 1);
    for (int i = 0; best >= 0 && result->facts.can_batch && i < result->limits.size_count; i++) {
        struct tune_config config = result->rows[best].config;
        config.batch_size = result->limits.sizes[i];
        if (open_question(result, &config, ret_config))
            return 1;
    }
    return 0;
}

/* One row of leat.DataLoader where it can make the batches, with the best batch size so far. */
static int ask_leat(struct tune_result *result, struct tune_config *ret_config)
{
    int best = best_of(result, 1);
    struct tune_config config = {.leat = 1, .batch_size = result->facts.now.batch_size};
    if (!result->facts.can_leat)
        return 0;
    if (best >= 0)
        config.batch_size = result->rows[best].config.batch_size;
    return open_question(result, &config, ret_config);
}

/* 1 when two rows need no further measurement: equal, and both precise. */
static int is_tie(const struct tune_result *result, int a, int b)
{
    double low = fmin(score(result, a), score(result, b)), high = top_score(result, 0);
    double spread = fmax(result->rows[a].spread_ratio, result->rows[b].spread_ratio);
    return low >= high * (1 - TUNE_SAME) && spread <= TUNE_SAME_MOST;
}

/* Measures the best row again, and the simpler row that would be chosen instead of it (else the
 * second best), when they are close. With persistent_workers, so that their gain is measured too.
 */
static int ask_again(struct tune_result *result, struct tune_config *ret_config)
{
    int second = -1, best = -1, chosen = tune_best(result);
    for (size_t i = 0; i < result->row_count; i++) {
        if (best < 0 || score(result, i) > score(result, best)) {
            second = best;
            best = (int)i;
        } else if (second < 0 || score(result, i) > score(result, second)) {
            second = (int)i;
        }
    }
    if (chosen >= 0 && chosen != best)
        second = chosen;
    if (second < 0 || score(result, second) <= 0 ||
        score(result, second) < score(result, best) * (1 - CLOSE_RATIO) ||
        is_tie(result, best, second))
        return 0;
    for (int i = 0; i < 2; i++) {
        const struct tune_row *row = &result->rows[i ? second : best];
        if (row->times < 2) {
            *ret_config = row->config;
            ret_config->persistent = row->config.workers > 0;
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
    return result->row_count >= 4; /* current settings, workers, none: the dataset is the cause */
}

int search_next(struct tune_result *result, struct tune_config *ret_config)
{
    if (only_failures(result))
        return 0;
    return open_question(result, &result->facts.now, ret_config) || ask_knee(result, ret_config) ||
           ask_neighbours(result, ret_config) || ask_between(result, ret_config) ||
           ask_doubt(result, ret_config) || ask_prefetch(result, ret_config) ||
           ask_pin(result, ret_config) || ask_sizes(result, ret_config) ||
           ask_leat(result, ret_config) || ask_again(result, ret_config) ||
           ask_persistent(result, ret_config);
}

/* Usually eight: current settings, knee, two neighbours, prefetch, two again, persistent. */
int search_left(const struct tune_result *result)
{
    int usual = 8 + result->limits.size_count + result->facts.accelerator + result->facts.can_leat;
    int done = 0;
    for (size_t i = 0; i < result->row_count; i++)
        done += result->rows[i].times;
    return usual > done ? usual - done : 1;
}
