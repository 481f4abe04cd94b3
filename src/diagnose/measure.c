/* measure.c: the few measures that several rules share. See rule.h for what each promises. */
#include "diagnose/rule.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct rank_facts *typical_rank(const struct facts *facts)
{
    if (facts->rank_count == 0 || facts->typical < 0)
        return NULL;
    return &facts->ranks[facts->typical];
}

const struct rank_facts *judged_rank(const struct facts *facts)
{
    const struct rank_facts *r = typical_rank(facts);
    if (!r || r->kept < LEAST_STEPS || !(r->kept_ms > 0))
        return NULL;
    return r->kept_ms / (double)r->kept >= COST_FLOOR * r->cost_ms ? r : NULL;
}

static double phase_sum(const struct rank_facts *r, int phase)
{
    double sum = 0;
    for (size_t i = 0; r->phase_ms[phase] && i < r->count; i++)
        sum += r->weight[i] * r->phase_ms[phase][i];
    return sum;
}

double phase_mean(const struct rank_facts *r, int phase)
{
    return r->kept > 0 ? phase_sum(r, phase) / (double)r->kept : 0;
}

double phase_share(const struct rank_facts *r, int phase)
{
    return r->kept_ms > 0 ? phase_sum(r, phase) / r->kept_ms : 0;
}

struct entry {
    double wall_ms;
    size_t index;
};

/* Slowest first; equal ones in the order of the run, so that the choice is always the same. */
static int slower_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->wall_ms != y->wall_ms)
        return x->wall_ms < y->wall_ms ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

int slowest_find(const struct rank_facts *r, struct slowest *ret)
{
    struct entry *entries = mem_alloc_array(r->count + 1, sizeof *entries);
    double *walls = mem_alloc_array(r->count + 1, sizeof *walls);
    unsigned char *slow = mem_alloc(r->count + 1);
    if (!entries || !walls || !slow) {
        mem_free(entries);
        mem_free(walls);
        mem_free(slow);
        return -ENOMEM;
    }
    /* Every entry stands for one step at the least, so the slowest `wanted` steps are among as many
     * of the slowest entries; twice as many leave room for folds that are passed over below. */
    int64_t wanted = r->kept / 100 > 1 ? r->kept / 100 : 1, taken = 0;
    double held = 0;
    size_t n = 0;
    memcpy(walls, r->wall_ms, r->count * sizeof *walls);
    double sorted = 2.0 * (double)wanted / (double)(r->count + 1);
    double cut = sorted < 0.5 ? stats_quantile(walls, r->count, 1 - sorted) : 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->wall_ms[i] >= cut)
            entries[n++] = (struct entry){r->wall_ms[i], i};
    qsort(entries, n, sizeof *entries, slower_first);
    for (size_t i = 0; i < n && taken < wanted; i++) {
        size_t at = entries[i].index;
        if (taken + (int64_t)r->weight[at] > wanted && taken > 0)
            continue; /* a fold that is larger than what is still wanted */
        slow[at] = 1;
        taken += (int64_t)r->weight[at];
        held += r->weight[at] * r->wall_ms[at];
    }
    mem_free(entries);
    mem_free(walls);
    *ret = (struct slowest){.slow = slow,
                            .steps = taken,
                            .share = r->kept_ms > 0 ? held / r->kept_ms : 0,
                            .fair_share = r->kept > 0 ? (double)taken / (double)r->kept : 1};
    return 0;
}

/* In a run of fewer than 100 steps the slowest "1 %" is one step, which holds 5 % of 20 equal ones
 * without being slow: so they must also hold five times their fair share, which is what 5 % for
 * 1 % of the steps means in a long run. */
int slowest_stalls(const struct slowest *s)
{
    return s->share >= STALL_SHARE && s->share >= s->fair_share * (STALL_SHARE / 0.01);
}

double bound_share(const struct rank_facts *r, unsigned phase_bits, struct findings *found)
{
    double share = 0, mean_ms = 0;
    for (int p = 0; p < PHASES; p++)
        if (phase_bits >> p & 1) {
            share += phase_share(r, p);
            mean_ms += phase_mean(r, p);
        }
    if (share < BOUND_WARNING || mean_ms < COST_FLOOR * r->cost_ms)
        return 0;
    struct slowest slowest;
    if (slowest_find(r, &slowest) < 0) {
        found->failed = 1;
        return 0;
    }
    double phase_ms = 0, wall_ms = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (slowest.slow[i])
            continue;
        wall_ms += r->weight[i] * r->wall_ms[i];
        for (int p = 0; p < PHASES; p++)
            if ((phase_bits >> p & 1) && r->phase_ms[p])
                phase_ms += r->weight[i] * r->phase_ms[p][i];
    }
    mem_free(slowest.slow);
    /* It vanishes: below the threshold without them. Where the slowest do not amount to a stall,
     * there would be no verdict to take its place, and the share stands. */
    int vanishes = phase_ms < BOUND_WARNING * wall_ms && slowest_stalls(&slowest);
    return vanishes ? 0 : share;
}

int gpu_share_of(const struct facts *facts, const struct rank_facts *r, clock_phases phases,
                 struct gpu_share *ret)
{
    double all_ms = 0, copies = waits_of_copies(facts, r), late = launches_after_waits(facts, r);
    int is_wait = (phases & CLOCK_PHASE(SYNC)) != 0, is_copy = (phases & CLOCK_PHASE(H2D)) != 0;
    struct gpu_share sum = {0};
    for (size_t i = 0; i < facts->gpu_phase_count; i++) {
        const struct gpu_phase *p = &facts->gpu_phases[i];
        if (p->pid != r->pid)
            continue;
        all_ms += p->device_ms;
        double waited = p->phase == LEAT_CLOCK_SYNC ? 1 : p->phase == LEAT_CLOCK_LAUNCH ? late : 0;
        double part = (double)(phases >> p->phase & 1) * (1 - waited) +
                      (is_copy * copies + is_wait * (1 - copies)) * waited;
        sum.device += part * p->device_ms;
        sum.idle += part * p->idle_ms;
    }
    if (!(all_ms > 0) || all_ms < CLOCK_STEPS * r->kept_ms / (double)r->kept)
        return 0;
    *ret = (struct gpu_share){sum.device / all_ms, sum.idle / all_ms};
    return 1;
}

double exposed_share(const struct facts *facts, const struct rank_facts *r, double share,
                     clock_phases phases)
{
    struct gpu_share gpu;
    if (!(share > 0) || !gpu_share_of(facts, r, phases, &gpu))
        return share;
    if (gpu.idle < BOUND_WARNING)
        return 0;
    return gpu.idle < share ? gpu.idle : share;
}

void prove_exposed(struct finding *f, const struct facts *facts, const struct rank_facts *r,
                   clock_phases phases)
{
    struct gpu_share gpu;
    if (gpu_share_of(facts, r, phases, &gpu))
        finding_prove(f, EVIDENCE_GPU_IDLE, gpu.idle, "gpu_clock WHERE pid = %lld",
                      (long long)r->pid);
}

enum severity share_severity(double share)
{
    return share >= BOUND_CRITICAL ? SEVERITY_CRITICAL : SEVERITY_WARNING;
}

int step_time_warned(const struct findings *found)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->items[i].section == SECTION_STEP_TIME &&
            found->items[i].severity >= SEVERITY_WARNING)
            return 1;
    return 0;
}

double gain_of(double wall_ms, double new_ms)
{
    return new_ms > 0 && new_ms < wall_ms ? wall_ms / new_ms - 1 : NAN;
}

void kept_interval(const struct rank_facts *r, double *ret_from_ms, double *ret_to_ms)
{
    *ret_from_ms = *ret_to_ms = 0;
    if (!r || r->count == 0)
        return;
    /* A fold's end is that of its last step. */
    *ret_from_ms = r->end_ms[0] - r->weight[0] * r->wall_ms[0];
    *ret_to_ms = r->end_ms[r->count - 1];
}

const struct loader_fact *feeding_loader(const struct facts *facts, int rank)
{
    const struct loader_fact *best = NULL;
    for (size_t i = 0; i < facts->loader_count; i++) {
        const struct loader_fact *l = &facts->loaders[i];
        if (l->rank != rank || l->use == LOADER_EVAL)
            continue;
        if (!best || l->wait_ms > best->wait_ms)
            best = l;
    }
    return best;
}

/* The growth of a counter per ms, between the first and the last sample that have it. */
static double counter_rate(const struct facts *facts, int64_t pid, double from_ms, double to_ms,
                           double (*counter)(const struct proc_sample *))
{
    const struct proc_sample *first = NULL, *last = NULL;
    for (size_t i = 0; i < facts->proc_sample_count; i++) {
        const struct proc_sample *s = &facts->proc_samples[i];
        if (s->pid != pid || s->t_ms < from_ms || s->t_ms > to_ms || isnan(counter(s)))
            continue;
        if (!first)
            first = s;
        last = s;
    }
    if (!first || last->t_ms <= first->t_ms)
        return NAN;
    return (counter(last) - counter(first)) / (last->t_ms - first->t_ms);
}

static double cpu_counter(const struct proc_sample *s)
{
    return s->cpu_ms;
}

static double delay_counter(const struct proc_sample *s)
{
    return s->run_delay_ms;
}

double process_cpu(const struct facts *facts, int64_t pid, double from_ms, double to_ms)
{
    return counter_rate(facts, pid, from_ms, to_ms, cpu_counter);
}

double process_delay(const struct facts *facts, int64_t pid, double from_ms, double to_ms)
{
    return counter_rate(facts, pid, from_ms, to_ms, delay_counter);
}

static double mean_of_samples(const struct facts *facts, double from_ms, double to_ms,
                              double (*value)(const struct sys_sample *))
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->t_ms < from_ms || s->t_ms > to_ms || isnan(value(s)))
            continue;
        sum += value(s);
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static double all_cpu(const struct sys_sample *s)
{
    return s->cpu_ratio;
}

static double foreign_cpu(const struct sys_sample *s)
{
    return s->cpu_ratio - s->run_cpu_ratio;
}

double machine_cpu(const struct facts *facts, double from_ms, double to_ms)
{
    return mean_of_samples(facts, from_ms, to_ms, all_cpu);
}

double cores_left(const struct facts *facts, double from_ms, double to_ms)
{
    double cores = facts->cpus > 0 ? (double)facts->cpus : 1;
    double foreign = mean_of_samples(facts, from_ms, to_ms, foreign_cpu);
    double left = foreign > 0 ? cores * (1 - foreign) : cores;
    return left > 1 ? left : 1; /* a process always gets on somehow, at about a core's share */
}

static double smaller_known(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    return a < b ? a : b;
}

double device_capacity(const struct facts *facts)
{
    double least = NAN;
    for (size_t i = 0; i < facts->gpu_sample_count; i++)
        least = smaller_known(least, facts->gpu_samples[i].memory_total);
    return least;
}

double host_capacity(const struct facts *facts)
{
    double least = facts->memory_limit_bytes > 0 ? (double)facts->memory_limit_bytes : NAN;
    for (size_t i = 0; i < facts->sys_sample_count; i++)
        least = smaller_known(least, facts->sys_samples[i].memory_total);
    return least;
}

double private_bytes(const struct proc_sample *s)
{
    return isnan(s->shared_bytes) ? s->rss_bytes : s->rss_bytes - s->shared_bytes;
}

int ended_badly(const struct facts *facts)
{
    enum run_end end = facts_run_end(facts);
    return end == RUN_KILLED || end == RUN_FAILED;
}

const struct proc_fact *exception_with(const struct facts *facts, const char *text)
{
    for (size_t i = 0; i < facts->proc_count; i++)
        if (strcasestr(facts->procs[i].exception, text))
            return &facts->procs[i];
    return NULL;
}

void note_missing_loader(struct finding *f, const struct facts *facts)
{
    for (size_t i = 0; i < facts->loader_count; i++)
        if (facts->loaders[i].use != LOADER_EVAL)
            return;
    finding_argument(f, "loader=none");
    finding_add_advice(f, "No DataLoader was seen, so the time to make batches is inside forward; "
                          "to see it, put it into leat.phase(\"input\") or iterate over "
                          "leat.wrap_loader(...).");
}
