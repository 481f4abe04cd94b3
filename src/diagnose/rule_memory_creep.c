/* rule_memory_creep.c: MEMORY CREEP and MEMORY RISING: memory that grows with the steps.
 *
 * Checked are: what torch has allocated on a device, the private memory of a rank's process, and
 * that of its DataLoader workers. Private is RSS without shared pages: mapped datasets and batches
 * in shared memory fill the RSS of a healthy process.
 *
 * A leak is a slope, not a difference: memory rises at the start of every run (allocator, caches,
 * the first epoch) and then stays, or rises once more when the free blocks of an allocator are too
 * small. So the slope is a robust one (Theil-Sen over kept steps), its 95 % interval must be above
 * zero, that of the last third too, and the middle and the last third must each rise at least half
 * as fast as the whole: a leak never pauses for a third of the run. There is one finding per kind,
 * for the worst process, with the number of others. */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
/* verdicts.md: growth of 5 % and 64 MiB; memory of a healthy run varies less. */
#define CREEP_RATIO 0.05
#define CREEP_BYTES (64 * MIB)
/* Growth worth an info: more than the heap of any Python process grows in a run. */
#define RISING_RATIO 0.01
#define RISING_BYTES (8 * MIB)
/* A slope needs points: 15 leave 5 for the last third, the fewest for which a 95 % interval is
 * useful. In the first 5 s of steps a run is still starting. */
#define CREEP_SAMPLES 15
#define CREEP_MS      5000.0
#define FURTHER_STEPS 10000.0 /* verdicts.md: critical when memory is full within so many */

struct series {
    double *step, *bytes; /* owned */
    size_t count, capacity_step, capacity_bytes;
};

struct growth {
    enum kind { GPU, HOST, WORKER } kind;
    const struct rank_facts *rank;
    int device, worker_id;
    int64_t pid;
    double slope;      /* bytes per step */
    double from, to;   /* bytes at the start of the window, and with its growth added */
    double steps_left; /* until memory is full; NaN: unknown */
    int creeps;        /* 1: creep, 0: rising */
    size_t others;     /* of the same kind and verdict */
};

static void series_done(struct series *s)
{
    mem_free(s->step);
    mem_free(s->bytes);
    *s = (struct series){0};
}

static int series_add(struct series *s, double step, double bytes)
{
    if (mem_reserve(&s->step, &s->capacity_step, s->count + 1, sizeof *s->step) < 0 ||
        mem_reserve(&s->bytes, &s->capacity_bytes, s->count + 1, sizeof *s->bytes) < 0)
        return -ENOMEM;
    s->step[s->count] = step;
    s->bytes[s->count++] = bytes;
    return 0;
}

/* The step at a time: that of the first entry which ends after it. -1 outside of the kept steps. */
static double step_at(const struct rank_facts *r, double t_ms)
{
    double from_ms, to_ms;
    kept_interval(r, &from_ms, &to_ms);
    if (t_ms < from_ms || t_ms > to_ms)
        return -1;
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->end_ms[middle] < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->count ? (double)r->step[low] : -1;
}

static double quantile_of(const double *values, size_t n)
{
    double few[5];
    memcpy(few, values, (n < 5 ? n : 5) * sizeof *few);
    return stats_quantile(few, n < 5 ? n : 5, 0.5);
}

/* 1 and the growth when the series rises as described above; 0 when it does not; negative: no
 * memory. */
static int judge(const struct series *s, struct growth *g)
{
    struct stats_slope all, middle, last;
    if (s->count < CREEP_SAMPLES)
        return 0;
    size_t third = s->count / 3, third2 = s->count - third;
    int result = stats_theil_sen(s->step, s->bytes, s->count, &all);
    if (result == 0)
        result = stats_theil_sen(s->step + third, s->bytes + third, third2 - third, &middle);
    if (result == 0)
        result = stats_theil_sen(s->step + third2, s->bytes + third2, third, &last);
    if (result < 0)
        return result == -ENOMEM ? result : 0;
    if (!(all.low > 0) || !(last.low > 0) || middle.slope < all.slope / 2 ||
        last.slope < all.slope / 2)
        return 0;
    /* The ends must confirm the slope: most pairs may rise although the whole does not. */
    double first = quantile_of(s->bytes, s->count);
    double end = quantile_of(s->bytes + s->count - 5, 5);
    double grown = all.slope * (s->step[s->count - 1] - s->step[0]);
    if (end - first < grown / 2)
        return 0;
    g->slope = all.slope;
    g->from = first;
    g->to = first + grown;
    g->creeps = grown >= CREEP_BYTES && grown >= CREEP_RATIO * first;
    return g->creeps || (grown >= RISING_BYTES && grown >= RISING_RATIO * first);
}

/* Keeps the worst of a kind: a creep before a rise, then the larger growth. */
static void keep_worst(struct growth *worst, const struct growth *g)
{
    size_t others = worst->rank ? worst->others + 1 : 0;
    if (!worst->rank || g->creeps > worst->creeps ||
        (g->creeps == worst->creeps && g->to - g->from > worst->to - worst->from))
        *worst = *g;
    worst->others = others;
}

static double last_available(const struct facts *facts)
{
    for (size_t i = facts->sys_sample_count; i > 0; i--)
        if (!isnan(facts->sys_samples[i - 1].memory_available))
            return facts->sys_samples[i - 1].memory_available;
    return NAN;
}

static int check_devices(const struct facts *facts, struct growth *worst)
{
    struct series s = {0};
    int result = 0;
    for (size_t i = 0; result >= 0 && i < facts->memory_sample_count; i++) {
        const struct memory_sample *m = &facts->memory_samples[i];
        const struct rank_facts *r = NULL;
        for (size_t j = 0; j < facts->rank_count; j++)
            if (facts->ranks[j].rank == m->rank)
                r = &facts->ranks[j];
        double step = r ? step_at(r, m->t_ms) : -1;
        if (step >= 0 && !isnan(m->allocated))
            result = series_add(&s, step, m->allocated);
        int ends =
            i + 1 == facts->memory_sample_count || m[1].rank != m->rank || m[1].device != m->device;
        if (!ends || result < 0)
            continue;
        struct growth g = {.kind = GPU, .rank = r, .device = m->device, .worker_id = -1, .pid = -1};
        result = r && r->kept_ms >= CREEP_MS ? judge(&s, &g) : 0;
        if (result > 0) {
            g.pid = r->pid;
            g.steps_left = (device_capacity(facts) - g.to) / g.slope;
            keep_worst(worst, &g);
        }
        series_done(&s);
    }
    series_done(&s);
    return result < 0 ? result : 0;
}

/* Checks the memory of the process that `g` names. */
static int check_process(const struct facts *facts, struct growth *g, struct growth *worst)
{
    struct series s = {0};
    size_t count;
    const struct proc_sample *samples = facts_samples(facts, g->pid, &count);
    int result = 0;
    for (size_t i = 0; result >= 0 && i < count; i++) {
        double step = step_at(g->rank, samples[i].t_ms);
        if (step >= 0 && !isnan(private_bytes(&samples[i])))
            result = series_add(&s, step, private_bytes(&samples[i]));
    }
    if (result >= 0 && count && g->rank->kept_ms >= CREEP_MS)
        result = judge(&s, g);
    if (result > 0) {
        /* Ranks share the free memory, and usually all leak if one does. */
        g->steps_left = last_available(facts) / (double)facts->rank_count / g->slope;
        keep_worst(worst, g);
    }
    series_done(&s);
    return result < 0 ? result : 0;
}

static int check_processes(const struct facts *facts, struct growth *worst_host,
                           struct growth *worst_worker)
{
    int result = 0;
    for (size_t i = 0; result >= 0 && i < facts->rank_count; i++) {
        struct growth g = {
            .kind = HOST, .rank = &facts->ranks[i], .worker_id = -1, .pid = facts->ranks[i].pid};
        result = check_process(facts, &g, worst_host);
    }
    for (size_t i = 0; result >= 0 && i < facts->worker_count; i++)
        for (size_t j = 0; j < facts->rank_count; j++) {
            const struct worker_fact *w = &facts->workers[i];
            if (facts->ranks[j].rank != w->rank)
                continue;
            struct growth g = {
                .kind = WORKER, .rank = &facts->ranks[j], .worker_id = w->worker_id, .pid = w->pid};
            result = check_process(facts, &g, worst_worker);
            break;
        }
    return result < 0 ? result : 0;
}

static void add_finding(const struct growth *g, struct findings *found)
{
    if (!g->rank)
        return;
    int ends_soon = g->creeps && g->steps_left <= FURTHER_STEPS;
    struct finding *f =
        findings_add(found, g->creeps ? KIND_MEMORY_CREEP : KIND_MEMORY_RISING, SECTION_MEMORY,
                     ends_soon   ? SEVERITY_CRITICAL
                     : g->creeps ? SEVERITY_WARNING
                                 : SEVERITY_INFO);
    if (!f)
        return;
    char what[96], soon[96] = "", more[64] = "";
    if (g->kind == GPU)
        snprintf(what, sizeof what, "Memory allocated on device %d by rank %d", g->device,
                 g->rank->rank);
    else if (g->kind == HOST)
        snprintf(what, sizeof what, "Host memory of rank %d", g->rank->rank);
    else
        snprintf(what, sizeof what, "Host memory of DataLoader worker %d of rank %d", g->worker_id,
                 g->rank->rank);
    if (g->steps_left >= 0 && g->steps_left < 1e7)
        snprintf(soon, sizeof soon, ". It will be full after about %.0f further steps",
                 g->steps_left);
    if (g->others > 0)
        snprintf(more, sizeof more, "; %zu more processes or devices show the same", g->others);
    f->rank = g->rank->rank;
    f->pid = g->pid;
    f->worker = g->worker_id;
    f->stops_run = ends_soon;
    finding_say(f, "%s grows by %.3g MiB every 100 steps, from %.0f to %.0f MiB%s%s%s.", what,
                100 * g->slope / MIB, g->from / MIB, g->to / MIB, soon, more,
                g->kind == WORKER ? ". Cause: each worker copies the Python objects of the dataset "
                                    "that it reads (copy-on-write)"
                                  : "");
    if (g->kind == WORKER)
        finding_advise(f, ACTION_STORE_IN_ARRAYS,
                       "Keep the dataset's index in arrays (NumPy, torch) instead of lists and "
                       "dicts, and do not cache samples in the workers.");
    else
        finding_advise(
            f, ACTION_DROP_REFERENCES,
            "Look for tensors that stay alive from step to step: losses summed without .item() or "
            ".detach(), outputs collected in a list, graphs kept by retain_graph=True.");
    if (g->kind == GPU) {
        finding_argument(f, "device=%d", g->device);
        finding_prove(f, EVIDENCE_GROWTH_PER_STEP, g->slope,
                      "memory_samples WHERE rank = %d AND device = %d", g->rank->rank, g->device);
        finding_prove(f, EVIDENCE_GROWTH, g->to - g->from,
                      "memory_samples WHERE rank = %d AND device = %d", g->rank->rank, g->device);
    } else {
        finding_prove(f, EVIDENCE_GROWTH_PER_STEP, g->slope, "proc_samples WHERE pid = %lld",
                      (long long)g->pid);
        finding_prove(f, EVIDENCE_GROWTH, g->to - g->from, "proc_samples WHERE pid = %lld",
                      (long long)g->pid);
    }
}

void rule_memory_creep(const struct facts *facts, struct findings *found)
{
    struct growth gpu = {0}, host = {0}, worker = {0};
    if (check_devices(facts, &gpu) < 0 || check_processes(facts, &host, &worker) < 0) {
        found->failed = 1;
        return;
    }
    add_finding(&gpu, found);
    add_finding(&host, found);
    add_finding(&worker, found);
}
