/* cost.c: estimates the rate and the memory of settings before they are measured.
 *
 * A sample takes `wall` seconds, of which it computes `cpu`. So w workers make at most w/wall
 * samples per second, and all CPUs together at most CPUs/cpu. The two limits meet at the knee, w =
 * CPUs * wall/cpu: fewer workers leave CPUs idle, more wait for CPUs. The search starts there.
 *
 * Memory: the process without workers, the addition of each worker, and workers * prefetch ready
 * batches in shared memory.
 */
#include "tune/tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* Only some samples are timed, and a busy machine slows them down. A bound that is too low would
 * exclude the best settings; one that is this much too high is harmless. */
#define BOUND_MARGIN 1.25
/* Shorter waits are measurement error of two clocks. */
#define WAITING_S 20e-6
/* A sample computes only, if its time is less than this times its CPU time: the rest is measurement
 * error and other programs. */
#define COMPUTES_RATIO 1.25
/* The rest of /dev/shm is left to the training. */
#define SHM_SHARE 0.9

double cost_upper_rate(const struct tune_result *result, int workers)
{
    const struct tune_facts *f = &result->facts;
    if (!(f->sample_calm_s > 0))
        return INFINITY;
    return BOUND_MARGIN * (workers > 0 ? workers : 1) / f->sample_calm_s;
}

double cost_expected_rate(const struct tune_result *result, int workers)
{
    const struct tune_facts *f = &result->facts;
    if (!(f->sample_calm_s > 0) || !(f->sample_cpu_s > 0))
        return NAN;
    return fmin(workers / f->sample_calm_s, result->limits.cpus / f->sample_cpu_s);
}

int cost_knee(const struct tune_result *result)
{
    const struct tune_facts *f = &result->facts;
    double workers = result->limits.cpus;
    if (f->sample_cpu_s > 0 && f->sample_calm_s > WAITING_S + f->sample_cpu_s)
        workers *= f->sample_calm_s / f->sample_cpu_s;
    if (workers < 1)
        workers = 1;
    return workers < result->limits.most_workers ? (int)lround(workers)
                                                 : result->limits.most_workers;
}

int cost_most_workers(const struct tune_result *result)
{
    const struct tune_facts *f = &result->facts;
    int computes =
        f->sample_cpu_s > 0 && f->sample_calm_s <= WAITING_S + COMPUTES_RATIO * f->sample_cpu_s;
    return computes ? cost_knee(result) : result->limits.most_workers;
}

static double ready_bytes(const struct tune_facts *f, const struct tune_config *c)
{
    double batch = f->batch_bytes > 0 ? (double)f->batch_bytes : 0;
    if (f->now.batch_size > 0 && c->batch_size > 0)
        batch *= (double)c->batch_size / (double)f->now.batch_size;
    return batch * c->workers * c->prefetch;
}

/* Memory of the process without workers; infinity when not measured. */
static double base_bytes(const struct tune_result *result)
{
    double least = INFINITY;
    for (size_t i = 0; i < result->row_count; i++)
        if (result->rows[i].memory_bytes > 0 && result->rows[i].config.workers == 0 &&
            !result->rows[i].config.leat)
            least = fmin(least, (double)result->rows[i].memory_bytes);
    return least;
}

/* Memory of process and workers with these settings; -1 when not known. */
static int64_t cost_memory(const struct tune_result *result, const struct tune_config *config)
{
    double base = base_bytes(result), each = 0;
    if (!isfinite(base))
        return -1;
    if (config->leat) /* it has a limit of its own */
        return -1;
    if (config->workers == 0)
        return (int64_t)base;
    int seen = 0;
    for (size_t i = 0; i < result->row_count; i++) {
        const struct tune_row *row = &result->rows[i];
        if (row->memory_bytes <= 0 || row->config.workers == 0)
            continue;
        double added = (double)row->memory_bytes - base - ready_bytes(&result->facts, &row->config);
        each = fmax(each, added / row->config.workers);
        seen = 1;
    }
    if (!seen)
        return -1;
    return (int64_t)(base + each * config->workers + ready_bytes(&result->facts, config));
}

int cost_fits(const struct tune_result *result, const struct tune_config *config,
              struct leat_err *err)
{
    const struct tune_limits *limits = &result->limits;
    int64_t memory = cost_memory(result, config);
    double ready = ready_bytes(&result->facts, config);
    if (limits->memory_bytes >= 0 && memory > limits->memory_bytes)
        return err_set(err, -ENOMEM, "needs %.0f MiB of memory, the limit is %.0f",
                       (double)memory / 0x1p20, (double)limits->memory_bytes / 0x1p20);
    if (limits->shm_bytes >= 0 && ready > SHM_SHARE * (double)limits->shm_bytes)
        return err_set(err, -ENOMEM, "needs %.0f MiB of /dev/shm, %.0f are free", ready / 0x1p20,
                       (double)limits->shm_bytes / 0x1p20);
    return 0;
}
