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
 *     3 double and half of the best,     7 leat.DataLoader, where it could stand there
 *       then between them                8 the first two once more, when close and not known well
 *     4 prefetch 8; 4, if that gained    9 persistent_workers, when starting is worth saving
 *
 * Between 3 and 4, what contradicts the model is looked at twice. All but 7 to 9 are questions
 * about torch's DataLoader, and its rows alone answer them.
 */
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Between the best and twice its workers there may be something better than both when the double is
 * still this good. */
#define FLAT_RATIO 0.9
/* The model of cost leaves out collating and handing over: a third is theirs. */
#define DOUBT_RATIO 0.66
/* Rows this close are measured once more before one is called the best. */
#define CLOSE_RATIO 0.06
/* Batches ahead of each worker: what evens out all but the rarest of waits, and half of it. */
enum { PREFETCH_MOST = 8, PREFETCH_SOME = 4 };
/* Starting workers for each epoch is worth avoiding when it takes this share of one. */
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
    if (a->leat != b->leat) /* another loader must be worth the change */
        return a->leat < b->leat;
    if (a->workers != b->workers)
        return a->workers < b->workers;
    if (a->prefetch != b->prefetch)
        return a->prefetch < b->prefetch;
    return a->pin < b->pin;
}

/* The score of a row that counts: with `torch_only`, those of torch's DataLoader. */
static double counted(const struct tune_result *result, size_t i, int torch_only)
{
    return torch_only && result->rows[i].config.leat ? 0 : score(result, i);
}

static double top_score(const struct tune_result *result, int torch_only)
{
    double top = 0;
    for (size_t i = 0; i < result->row_count; i++)
        top = fmax(top, counted(result, i, torch_only));
    return top;
}

static int best_of(const struct tune_result *result, int torch_only)
{
    double top = top_score(result, torch_only), same = TUNE_SAME;
    int best = -1;
    for (size_t i = 0; i < result->row_count; i++)
        if (counted(result, i, torch_only) == top && result->rows[i].spread_ratio > same)
            same = fmin(result->rows[i].spread_ratio, TUNE_SAME_MOST);
    for (size_t i = 0; i < result->row_count && top > 0; i++)
        if (counted(result, i, torch_only) >= top * (1 - same) &&
            (best < 0 || simpler(&result->rows[i].config, &result->rows[best].config)))
            best = (int)i;
    return best;
}

int tune_best(const struct tune_result *result)
{
    return best_of(result, 0);
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
    config.persistent = config.leat = 0;
    return config;
}

/* Without a sample that could be timed, nothing is known: the climb begins at one worker a CPU.
 * Where so many do not fit, or fail, half of them may do; a second failure is the dataset's. */
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

/* 1 when so many workers could be the best, and are still to be measured. */
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
    if (best < 0) /* nothing works: the plainest loader of all is the last to try */
        return ask_workers(result, 0, 0, ret_config);
    int workers = result->rows[best].config.workers;
    /* One worker makes no more than none at all: the step up from none is two. */
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

/* The knee has lost to fewer workers, or all is far less than the samples should allow: either
 * handing over costs that much, or the machine was busy with something else when the knee was
 * measured. A second look at it, and in the second case one beyond it (who has to share CPUs gets
 * more of them with more processes), tell the two apart. */
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

/* The more ahead the better, if it matters at all, and by how much shows best at the most: what the
 * first step gains may be less than two rows differ by luck. Less will do where it does as well. */
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

/* Where leat.DataLoader could stand, it has one row, in batches of the size that is best so far. */
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

/* 1 when two rows need no second look: they are the same, and both are known well. */
static int is_tie(const struct tune_result *result, int a, int b)
{
    double low = fmin(score(result, a), score(result, b)), high = top_score(result, 0);
    double spread = fmax(result->rows[a].spread_ratio, result->rows[b].spread_ratio);
    return low >= high * (1 - TUNE_SAME) && spread <= TUNE_SAME_MOST;
}

/* The best, and the simpler row that would be chosen in its place, or else the one after it, decide
 * the answer: when they are close, a second look at each. It keeps the workers, and so also shows
 * what that saves. */
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
    return result->row_count >= 4; /* its own settings, workers, none: it is the dataset */
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

/* Own settings, knee, two neighbours, prefetch, two again, persistent: eight rows are usual. */
int search_left(const struct tune_result *result)
{
    int usual = 8 + result->limits.size_count + result->facts.accelerator + result->facts.can_leat;
    int done = 0;
    for (size_t i = 0; i < result->row_count; i++)
        done += result->rows[i].times;
    return usual > done ? usual - done : 1;
}
