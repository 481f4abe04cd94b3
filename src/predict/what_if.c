/* what_if.c: a simulation of a loader: how long a step would take with other settings.
 *
 *     workers, n of them        queue, in order        training process
 *     make ───────────────┐
 *     make ───────────────┼──► pin thread (if any) ──► hand over, rest of the step ──► next batch
 *     make ───────────────┘         at most n x prefetch batches are on their way
 *
 * Batches are given to the workers in turn and returned in order, and a worker is asked for a new
 * batch when one is taken. So a slow batch delays those behind it, more so if few are made ahead.
 * That cost depends on the distribution of the making times and has no simple formula, so some
 * thousand batches are simulated, with times drawn from the measured quantiles by a fixed sequence:
 * the same input gives the same answer on every machine.
 *
 * Cores are shared as a fair scheduler shares them. Each task first waits, which needs no core, and
 * then computes, at the rate
 *
 *     min(1, cores / (threads of the run that compute + threads of others))
 *
 * so workers that take cores from the training slow its step down, and the other way round. Time
 * advances from the end of one task to the next; the rate is constant in between. A step that
 * computes in several threads (rest_cpu_ms above rest_ms) counts as several threads.
 *
 * A real scheduler may wake a worker on the core of the process that wakes it, and move it only
 * when another core has been idle for a while. With `crowds`, the training and the worker that it
 * asked last share one core, and all others share the rest.
 *
 * A worker that is asked for a batch while it makes the next one answers late, because its Python
 * runs one thread at a time: at most busy_extra_ms later, and not later than it has made that
 * batch. */
#include "what_if.h"

#include "base/stats.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    SIMULATED = 4096, /* batches: the mean varies less than 1 % when times vary by half */
    WORKERS_MOST = 256,
    EACH_TRIED = 16
};
#define DONE_MS 1e-9 /* a task with less than this left has ended (rounding) */

struct task {
    double wait_ms, cpu_ms; /* what is left: first waiting, then computing */
    double threads;         /* that compute */
};

enum stage { ASKING, WAITING_FOR_ANSWER, HANDING_OVER, IN_REST_OF_STEP };

struct worker {
    struct task task;
    int at_work, made; /* made: batches of this epoch */
    int given;         /* batches of this epoch that it was asked for */
};

struct simulation {
    const struct what_if *w;
    int workers, ahead, epoch; /* ahead: batches on their way; epoch: its length in batches */
    struct worker worker[WORKERS_MOST];
    struct task pin, training;
    int pinning, pinned;
    enum stage stage;
    int first, taken; /* batches before this epoch, and batches of this epoch that were taken */
    double late_ms;   /* until the answer comes */
};

/* The making time of batch k: one of the quantiles, the same one in every simulation, so that
 * two settings get the same batches. */
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

/* ---- tasks ----------------------------------------------------------------------------------- */

static struct task make_task(const struct what_if *w, double ms)
{
    double mean = what_if_make_ms(w);
    double cpu = mean > 0 ? fmin(1, w->make_cpu_ms / mean) * ms : 0;
    return (struct task){ms - cpu, cpu, 1};
}

/* The rest of a step for one batch. More computing than it lasts means several threads. */
static struct task rest_task(const struct what_if *w)
{
    double ms = w->rest_ms / w->batches_per_step, cpu = w->rest_cpu_ms / w->batches_per_step;
    double threads = ms > 0 && cpu > ms ? cpu / ms : 1;
    return (struct task){cpu < ms ? ms - cpu : 0, fmin(cpu, ms), threads};
}

static int is_over(const struct task *t)
{
    return t->wait_ms <= DONE_MS && t->cpu_ms <= DONE_MS;
}

static double computing(const struct task *t)
{
    return t->wait_ms <= DONE_MS && t->cpu_ms > DONE_MS ? t->threads : 0;
}

static double rate_of(const struct what_if *w, double threads)
{
    double all = threads + w->foreign;
    return w->cores > 0 && all > w->cores ? w->cores / all : 1;
}

static double left_ms(const struct task *t, double rate)
{
    return t->wait_ms > DONE_MS ? t->wait_ms : t->cpu_ms / rate;
}

static void advance(struct task *t, double ms, double rate)
{
    if (t->wait_ms > DONE_MS)
        t->wait_ms -= ms;
    else
        t->cpu_ms -= ms * rate;
}

static double alone_ms(const struct what_if *w, struct task t)
{
    return t.wait_ms + t.cpu_ms / rate_of(w, t.threads);
}

/* ---- the simulation
 * -------------------------------------------------------------------------------- */

static void begin_epoch(struct simulation *p)
{
    for (int i = 0; i < p->workers; i++) {
        int most = (p->epoch - i + p->workers - 1) / p->workers, ahead = p->ahead / p->workers;
        p->worker[i] = (struct worker){.given = most < ahead ? most : ahead};
    }
    p->pinning = p->pinned = p->taken = 0;
    p->stage = ASKING;
}

/* The next batch of the epoch is ready for the training. */
static int is_ready(const struct simulation *p)
{
    if (p->w->pin_ms > 0)
        return p->pinned > p->taken;
    return p->worker[p->taken % p->workers].made > p->taken / p->workers;
}

static void hand_over(struct simulation *p)
{
    p->stage = HANDING_OVER;
    p->training = (struct task){0, p->w->hand_over_ms, 1};
}

/* Starts every task that can start. */
static void begin_tasks(struct simulation *p)
{
    for (int i = 0; i < p->workers; i++) {
        struct worker *it = &p->worker[i];
        if (it->at_work || it->made >= it->given)
            continue;
        it->at_work = 1;
        it->task = make_task(p->w, draw(p->w, p->first + it->made * p->workers + i));
    }
    if (p->w->pin_ms > 0 && !p->pinning && p->pinned < p->epoch &&
        p->worker[p->pinned % p->workers].made > p->pinned / p->workers) {
        p->pinning = 1;
        p->pin = (struct task){p->w->pin_ms, 0, 1};
    }
    if (p->stage == ASKING && is_ready(p)) {
        p->late_ms = p->w->busy_extra_ms;
        p->stage = WAITING_FOR_ANSWER;
    }
    if (p->stage == WAITING_FOR_ANSWER &&
        (p->late_ms <= DONE_MS || !p->worker[p->taken % p->workers].at_work))
        hand_over(p);
}

/* Speed of computing: in the training, in the worker that it asked last, in the other workers. */
struct pace {
    double training, asked, others;
};

static struct pace pace_of(const struct simulation *p)
{
    const struct worker *asked = &p->worker[p->taken % p->workers];
    double training =
        p->stage == HANDING_OVER || p->stage == IN_REST_OF_STEP ? computing(&p->training) : 0;
    double workers = 0, left = p->w->cores - 1;
    for (int i = 0; i < p->workers; i++)
        workers += p->worker[i].at_work ? computing(&p->worker[i].task) : 0;
    double rate = rate_of(p->w, training + workers);
    if (!p->w->crowds || !(training > 0) || !asked->at_work || !(computing(&asked->task) > 0))
        return (struct pace){rate, rate, rate};
    double half = fmin(rate, 0.5), rest = training + workers - 2 + p->w->foreign;
    return (struct pace){half, half, rest > left && left > 0 ? left / rest : 1};
}

/* Advances the time until the first task ends; returns by how much. */
static double pass_time(struct simulation *p)
{
    double ms = INFINITY;
    int training = p->stage == HANDING_OVER || p->stage == IN_REST_OF_STEP,
        asked = p->taken % p->workers;
    struct pace pace = pace_of(p);
    for (int i = 0; i < p->workers; i++)
        if (p->worker[i].at_work)
            ms = fmin(ms, left_ms(&p->worker[i].task, i == asked ? pace.asked : pace.others));
    if (p->pinning)
        ms = fmin(ms, left_ms(&p->pin, 1));
    if (training)
        ms = fmin(ms, left_ms(&p->training, pace.training));
    if (p->stage == WAITING_FOR_ANSWER)
        ms = fmin(ms, p->late_ms);
    for (int i = 0; i < p->workers; i++)
        if (p->worker[i].at_work)
            advance(&p->worker[i].task, ms, i == asked ? pace.asked : pace.others);
    if (p->pinning)
        advance(&p->pin, ms, 1);
    if (training)
        advance(&p->training, ms, pace.training);
    p->late_ms -= ms;
    return ms;
}

/* Ends finished tasks; 1 when the training has finished with a batch. */
static int end_tasks(struct simulation *p)
{
    for (int i = 0; i < p->workers; i++)
        if (p->worker[i].at_work && is_over(&p->worker[i].task)) {
            p->worker[i].at_work = 0;
            p->worker[i].made++;
        }
    if (p->pinning && is_over(&p->pin)) {
        p->pinning = 0;
        p->pinned++;
    }
    if (p->stage == HANDING_OVER && is_over(&p->training)) {
        /* Its worker is asked for the batch that is `ahead` later. */
        p->worker[p->taken % p->workers].given += p->taken + p->ahead < p->epoch;
        p->stage = IN_REST_OF_STEP;
        p->training = rest_task(p->w);
    }
    if (p->stage != IN_REST_OF_STEP || !is_over(&p->training))
        return 0;
    p->stage = ASKING;
    p->taken++;
    return 1;
}

/* Milliseconds per batch. */
static double simulate(const struct what_if *w)
{
    struct simulation p = {.w = w};
    p.workers = w->workers < WORKERS_MOST ? w->workers : WORKERS_MOST;
    p.ahead = p.workers * (w->prefetch > 0 && w->prefetch < SIMULATED ? w->prefetch : 2);
    p.epoch = w->epoch_batches > 0 && w->epoch_batches < SIMULATED ? w->epoch_batches : SIMULATED;
    int total = SIMULATED / p.epoch * p.epoch;
    /* Without epochs, the start is left out until the queue is full; with epochs, starts count. */
    int skip = p.epoch == SIMULATED ? SIMULATED / 8 : 0;
    double now = 0, from = 0;
    begin_epoch(&p);
    while (p.first < total) {
        begin_tasks(&p);
        now += pass_time(&p);
        if (!end_tasks(&p))
            continue;
        if (p.first + p.taken == skip)
            from = now;
        if (p.taken == p.epoch) {
            p.first += p.epoch;
            begin_epoch(&p);
        }
    }
    return (now - from) / (total - skip);
}

double what_if_step_ms(const struct what_if *w)
{
    /* With NaN the simulation would not end. */
    double all = what_if_make_ms(w) + w->make_cpu_ms + w->hand_over_ms + w->busy_extra_ms +
                 w->pin_ms + w->rest_ms + w->rest_cpu_ms + w->foreign;
    if (!isfinite(all))
        return NAN;
    if (w->workers > 0)
        return simulate(w) * w->batches_per_step;
    return w->batches_per_step *
           (alone_ms(w, make_task(w, what_if_make_ms(w))) + alone_ms(w, rest_task(w)));
}

static int next_tried(int workers)
{
    return workers < EACH_TRIED ? workers + 1 : workers + workers / 8;
}

int what_if_workers(const struct what_if *w, int most, double device_ms)
{
    const double near = 1.02; /* a smaller difference is not measurable in one run */
    struct what_if tried = *w;
    double best = INFINITY;
    for (tried.workers = 1; tried.workers <= most; tried.workers = next_tried(tried.workers))
        best = fmin(best, what_if_step_ms(&tried));
    best = fmax(best, device_ms);
    for (tried.workers = 1; tried.workers < most; tried.workers = next_tried(tried.workers))
        if (what_if_step_ms(&tried) <= near * best)
            break;
    return tried.workers < most ? tried.workers : most;
}
