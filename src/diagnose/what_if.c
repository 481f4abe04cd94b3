/* what_if.c: a small model of a loader, good enough to say what a change is worth.
 *
 *     workers, n of them        queue, in order        training process
 *     make ───────────────┐
 *     make ───────────────┼──► pin thread (if any) ──► hand over, rest of the step ──► next batch
 *     make ───────────────┘         n x prefetch batches at the most are on their way
 *
 * Batches are given to the workers in turn, come back in order, and a new one is given out when one
 * is taken: so a slow batch holds up those behind it, the more so the fewer are made ahead. What
 * that costs depends on the spread of the making times and has no simple formula; it is played
 * through instead, some thousand batches long, with times drawn from the measured quantiles by a
 * fixed sequence: the same input gives the same answer on every machine.
 *
 * The play assumes that everybody finds a core. That the cores are finite is a bound of its own:
 * the CPU time of all, divided by the cores. The step takes the longer of the two. In truth both
 * effects add up a little where they are equal; the model is then too hopeful by some percent.
 */
#include "diagnose/what_if.h"

#include "base/stats.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    PLAYED = 4096,     /* batches: scatter of the mean below 1 % for times that vary by half */
    AHEAD_MOST = 4096, /* batches on their way that the play keeps book of */
    WORKERS_MOST = 256
};

/* The making time of batch k: any of the quantiles, the same one in every play, so that two
 * settings meet the same batches. */
static double draw(const struct what_if *w, int k)
{
    return w->make_ms[stats_random(1, (uint64_t)k) % WHAT_IF_QUANTILES];
}

double what_if_make_ms(const struct what_if *w)
{
    double sum = 0;
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        sum += w->make_ms[i];
    return sum / WHAT_IF_QUANTILES;
}

/* Milliseconds a batch when everybody finds a core. */
static double play(const struct what_if *w)
{
    double worker_free[WORKERS_MOST] = {0},
           given[AHEAD_MOST]; /* given: when a batch was asked for */
    int workers = w->workers < WORKERS_MOST ? w->workers : WORKERS_MOST;
    int ahead = workers * (w->prefetch > 0 ? w->prefetch : 2);
    ahead = ahead < AHEAD_MOST ? ahead : AHEAD_MOST;
    int epoch = w->epoch_batches > 0 && w->epoch_batches < PLAYED ? w->epoch_batches : PLAYED;
    int total = PLAYED / epoch * epoch;
    /* An endless run is looked at once its queue has filled; epochs count with their starts. */
    int skip = epoch == PLAYED ? PLAYED / 8 : 0;
    double now = 0, pin_free = 0, from = 0, rest = w->rest_ms / w->batches_per_step;
    for (int k = 0; k < total; k++) {
        int in_epoch = k % epoch;
        if (in_epoch == 0)
            for (int i = 0; i < ahead; i++)
                given[i] = now;
        double *free_at = &worker_free[in_epoch % workers];
        double start = fmax(*free_at, given[in_epoch % ahead]);
        *free_at = start + draw(w, k);
        double ready = *free_at;
        if (w->pin_ms > 0)
            ready = pin_free = fmax(ready, pin_free) + w->pin_ms;
        now = fmax(now, ready);
        /* The worker that made it is asked for its memory; while it makes the next batch, its
         * Python answers late. */
        int at_work = now < *free_at + draw(w, k + workers);
        now += w->hand_over_ms + (at_work ? w->busy_extra_ms : 0);
        given[in_epoch % ahead] = now; /* for the batch that comes `ahead` later */
        now += rest;
        if (k + 1 == skip)
            from = now;
    }
    return (now - from) / (total - skip);
}

double what_if_step_ms(const struct what_if *w)
{
    if (w->workers <= 0)
        return w->batches_per_step * what_if_make_ms(w) + w->rest_ms;
    double cpu = w->batches_per_step * (w->make_cpu_ms + w->hand_over_ms) + w->rest_cpu_ms;
    /* Programs that compete for the cores do not keep theirs: the scheduler shares by thread, so
     * more threads of the run get more. */
    double shared = fmin(w->all_cores, (w->workers + 1) * w->thread_share);
    double cores = fmax(w->cores, shared);
    double bound = cores > 0 ? cpu / cores : 0;
    return fmax(play(w) * w->batches_per_step, bound);
}

int what_if_workers(const struct what_if *w, int most)
{
    const double near = 1.02; /* what no run could tell from the best */
    struct what_if tried = *w;
    double best = INFINITY;
    for (tried.workers = 1; tried.workers <= most; tried.workers++)
        best = fmin(best, what_if_step_ms(&tried));
    for (tried.workers = 1; tried.workers < most; tried.workers++)
        if (what_if_step_ms(&tried) <= near * best)
            break;
    return tried.workers;
}
