/* rule_common.c: what several rules share: thresholds applied to shares, evidence, notes. rule.h
 * describes each function. */
#include "diagnose/rule.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct rank_facts *judged_rank(const struct facts *facts)
{
    const struct rank_facts *r = typical_rank(facts);
    if (!r || r->kept < LEAST_STEPS || !(r->kept_ms > 0))
        return NULL;
    return step_mean(r) >= COST_FLOOR * r->cost_ms ? r : NULL;
}

/* In a run of fewer than 100 steps the slowest "1 %" is one step, which takes 5 % of 20 equal
 * steps without being slow. So they must also take five times their fair share, which is what 5
 * % for 1 % of the steps means in a long run. */
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
    /* The share is below the threshold without the slowest steps. Where those are no stall, no
     * other verdict would replace it, so it stays. */
    int vanishes = phase_ms < BOUND_WARNING * wall_ms && slowest_stalls(&slowest);
    return vanishes ? 0 : share;
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
    finding_add_advice(
        f, "No DataLoader was seen, so forward includes the time to make batches. To measure it, "
           "iterate over leat.wrap_loader(...) or make batches inside leat.phase(\"input\").");
}

void device_lines_place(struct finding *f, const struct device_lines *found,
                        const struct rank_facts *r, const char *of)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct cuda_line *l = found->lines[i];
        char at[sizeof found->at];
        snprintf(at, sizeof at, "%s:%lld", l->file, (long long)l->line);
        double ms = l->ms / (double)r->steps;
        finding_place(f, at, found->ms > 0 ? ms / found->ms : 0, of);
    }
}
