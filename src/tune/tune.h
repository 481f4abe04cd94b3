/* tune.h: `leat bench`: what it measures of a loader, and the search for the best settings.
 *
 *     user's process (python/leat/bench/agent.py)            leat
 *     first iteration of the training loader ── hello ──► session
 *                  ◄── step ──                            │ on a machine with a GPU:
 *         how it copies to its device ─────────────────►  │ that is how rows copy, too
 *                  ◄── measure num_workers=4 ──           │ search: which settings next?
 *         batch times ─────────────────────────────────►  │ rate:   is the rate known well enough?
 *                  ◄── stop ──                            │
 *         ... rows ...                                    ▼
 *                  ◄── model on a cached batch ──       tune_result ─► table, verdict, line, JSON
 *
 * The user's process does what leat requests and reports when each batch arrived. All decisions are
 * made here, from plain values and without a clock, so they are tested without a process.
 */
#ifndef LEAT_TUNE_TUNE_H
#define LEAT_TUNE_TUNE_H

#include "base/json.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TUNE_ROWS = 48,        /* the search needs about ten */
    TUNE_SIZES = 8,        /* batch sizes that may be asked for */
    TUNE_PREFETCH = 2,     /* torch's default for a loader with workers */
    TUNE_MOST_WORKERS = 64 /* no training is known to need more */
};

/* Settings of a DataLoader. Without workers, prefetch and persistent are 0. leat.DataLoader has
 * none of the four: it chooses threads and batches ahead by itself, and copies to the device. */
struct tune_config {
    int workers, prefetch, pin, persistent;
    int64_t
        batch_size; /* samples; 0: the loader does not batch by a number (a sampler of its own) */
    int leat;       /* leat.DataLoader instead of torch's */
};

enum tune_status { TUNE_OK, TUNE_FAILED, TUNE_SKIPPED };

struct tune_row {
    struct tune_config config;
    enum tune_status status;
    int times;            /* number of measurements, merged */
    double rate;          /* samples/s while it runs; NaN when not known */
    double spread_ratio;  /* half of the 95 % interval of the rate, over the rate; NaN */
    double first_batch_s; /* from the request for an iterator, workers' start included; NaN */
    double first_round_s; /* until every worker has delivered once; NaN */
    double restart_s;     /* first batch of a second epoch, workers kept; NaN */
    double seconds;       /* duration of the measurement */
    int64_t batches, samples;
    int64_t memory_bytes; /* maximum of the process and its workers; -1 */
    int threads, ahead;   /* chosen by leat.DataLoader; 0 */
    char error[200];      /* why it failed or was skipped; "" */
};

/* What the user's process reports of the loader. */
struct tune_facts {
    char dataset[96], where[200], torch[32], context[16];
    struct tune_config now;
    int64_t dataset_length, epoch_batches; /* -1: not known */
    int64_t batch_bytes;                   /* of one batch of the loader's own size; -1 */
    int iterable, accelerator, local_ranks;
    int can_batch; /* its batch size may be changed */
    /* How batches get to the device. */
    char device[24];    /* "cuda:0"; "": batches are not copied */
    int non_blocking;   /* -1: not known */
    int64_t copy_bytes; /* of a batch; -1 */
    int can_leat;       /* leat.DataLoader can make these batches and copy them there */
    /* One sample, timed in the main process. */
    int64_t sample_count;
    double sample_mean_s, sample_p99_s; /* NaN */
    double sample_calm_s, sample_cpu_s; /* without the slowest tenth: wall and CPU; NaN */
    char sample_error[200];
    json_t *call; /* owned: [[name, expression] ...] of the user's own call; NULL */
    char call_name[64];
};

struct tune_limits {
    double cpus;
    int64_t memory_bytes, shm_bytes; /* -1: no limit known */
    double time_s;                   /* for the whole search */
    double hang_s;                   /* without a batch for this long, it hangs */
    int most_workers;
    int64_t sizes[TUNE_SIZES];
    int size_count;
};

struct tune_result {
    struct tune_facts facts;
    struct tune_limits limits;
    struct tune_row rows[TUNE_ROWS];
    size_t row_count;
    int best, now;               /* rows; -1: none */
    double cached_rate;          /* samples/s with a cached batch; NaN */
    double step_s, step_samples; /* the model on a cached batch; NaN */
    int64_t steps;
    char model_error[200];
    double elapsed_s;
    double others_cpus; /* CPUs that other programs used during the search; NaN */
    double all_cpus;    /* of the machine; NaN */
    int interrupted, out_of_time;
};

void tune_result_init(struct tune_result *result);
void tune_result_done(struct tune_result *result);

int tune_config_same(const struct tune_config *a, const struct tune_config *b);
/* The row of these settings; NULL when there is none. */
struct tune_row *tune_find(struct tune_result *result, const struct tune_config *config);

/* Samples/s over an epoch of the user's length, including the start of the epoch. `persistent`
 * tells whether workers are kept. 0 for a row without a rate. */
double tune_score(const struct tune_facts *facts, const struct tune_row *row, int persistent);
/* The row to recommend, or -1 when no row has a rate: the simplest (fewest workers first) whose
 * score equals the best within TUNE_SAME, or within the best row's spread if that is wider, up to
 * TUNE_SAME_MOST, so that the choice loses less than 5 %. */
#define TUNE_SAME      0.02
#define TUNE_SAME_MOST 0.04
int tune_best(const struct tune_result *result);

/* ---- model of cost (cost.c) ------------------------------------------------------------------ */

/* An upper bound of samples/s with `workers`, from the time of a sample; infinity when unknown. */
double cost_upper_rate(const struct tune_result *result, int workers);
/* The number of workers that keeps all CPUs busy. */
int cost_knee(const struct tune_result *result);
/* The most workers worth measuring: samples that only compute gain nothing beyond one per CPU. */
int cost_most_workers(const struct tune_result *result);
/* Samples/s expected of `workers`, without the cost of handing over; NaN when not known. */
double cost_expected_rate(const struct tune_result *result, int workers);
/* 0, or -ENOMEM with a sentence when these settings do not fit the limits. */
int cost_fits(const struct tune_result *result, const struct tune_config *config,
              struct leat_err *err);

/* ---- search (search.c) ----------------------------------------------------------------------- */

/* The settings to measure next, given all rows so far (a row may be measured again). 1, or 0 when
 * the search is over. Settings that exceed the limits become skipped rows. */
int search_next(struct tune_result *result, struct tune_config *ret_config);
/* An estimate of the rows still to measure. */
int search_left(const struct tune_result *result);
/* The settings to recommend, persistent_workers included; 0, or -ENOENT when nothing worked. */
int search_choice(const struct tune_result *result, struct tune_config *ret_config);

/* ---- results (tune_text.c, tune_json.c, call_line.c) ----------------------------------------- */

void tune_text(const struct tune_result *result, int colour, struct str *out);
json_t *tune_json(const struct tune_result *result); /* NULL when out of memory */

enum tune_bottleneck { BOTTLENECK_UNKNOWN, BOTTLENECK_LOADER, BOTTLENECK_MODEL };
/* What keeps the best settings below the model's rate. */
enum tune_limit { LIMIT_NONE, LIMIT_HAND_OVER, LIMIT_SAMPLE };
struct tune_verdict {
    enum tune_bottleneck bottleneck;
    enum tune_limit limit;
    double factor;         /* how many times faster the other one is; NaN */
    double gain;           /* score of the choice over that of the current settings; NaN */
    double sample_cheaper; /* LIMIT_SAMPLE: how many times cheaper a sample must become; NaN */
    char sentence[400];
};
/* 1 when other programs used CPUs of this run: rows then differ by chance. */
int tune_disturbed(const struct tune_result *result);
void tune_judge(const struct tune_result *result, struct tune_verdict *ret_verdict);
/* The call to paste. */
void tune_call_line(const struct tune_facts *facts, const struct tune_config *config,
                    struct str *out);

#endif
