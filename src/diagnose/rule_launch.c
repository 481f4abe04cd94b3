/* rule_launch.c: LAUNCH-BOUND: during forward, backward and optimizer the device waits until the
 * host launches work. Only the clock of the device shows it: pauses of 250 us and more by
 * events, in the phase in which they are; shorter ones by samples between launches. The actions
 * differ: a long pause is Python that has nothing to do with launching, short ones are kernels
 * too small for their launches. */
#include "diagnose/rule.h"

static const enum leat_clock_phase compute_phases[] = {LEAT_CLOCK_FORWARD, LEAT_CLOCK_BACKWARD,
                                                       LEAT_CLOCK_OPTIMIZER, LEAT_CLOCK_LAUNCH};
#define COMPUTE_PHASES                                                                             \
    (CLOCK_PHASE(FORWARD) | CLOCK_PHASE(BACKWARD) | CLOCK_PHASE(OPTIMIZER) | CLOCK_PHASE(LAUNCH))

static enum leat_clock_phase largest_gap(const struct facts *facts, const struct rank_facts *r,
                                         double *ret_idle)
{
    enum leat_clock_phase largest = compute_phases[0];
    *ret_idle = 0;
    for (size_t i = 0; i < sizeof compute_phases / sizeof *compute_phases; i++) {
        struct gpu_share gpu = {0};
        if (gpu_share_of(facts, r, 1u << compute_phases[i], &gpu) && gpu.idle > *ret_idle) {
            *ret_idle = gpu.idle;
            largest = compute_phases[i];
        }
    }
    return largest;
}

static void describe_phase(struct finding *f, double idle, double wall_ms, const char *largest,
                           double largest_idle)
{
    finding_say(
        f,
        "During forward, backward and optimizer the GPU is idle for %.0f %% of the time, %.2f ms "
        "per step, because Python works between two kernel launches; most of it in %s (%.0f %%).",
        100 * idle, idle * wall_ms, largest, 100 * largest_idle);
    finding_advise(f, ACTION_REDUCE_PYTHON,
                   "Move work that is not for the GPU (Python loops, numpy, logging, hooks) out of "
                   "%s, or do it while the GPU has queued work. torch.compile and CUDA graphs need "
                   "less Python per launch.",
                   largest);
    finding_argument(f, "phase=%s", largest);
}

static void describe_launches(struct finding *f, double idle, double wall_ms)
{
    finding_say(
        f,
        "The GPU is idle for at least %.0f %% of the time, %.2f ms per step, between launches that "
        "follow each other closely: each kernel ends before Python launches the next.",
        100 * idle, idle * wall_ms);
    finding_advise(f, ACTION_LAUNCH_FEWER_KERNELS,
                   "Launch fewer and larger kernels: use torch.compile, CUDA graphs "
                   "(mode=\"reduce-overhead\"), a larger batch, fused=True or foreach=True for the "
                   "optimizer, or one operation instead of a Python loop over small tensors.");
}

void rule_launch(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    struct gpu_share gpu;
    if (!r || !gpu_share_of(facts, r, COMPUTE_PHASES, &gpu) || gpu.idle < BOUND_WARNING)
        return;
    double wall_ms = step_mean(r), largest_idle;
    if (gpu.idle * wall_ms < COST_FLOOR * r->cost_ms)
        return;
    enum leat_clock_phase largest = largest_gap(facts, r, &largest_idle);
    struct finding *f =
        findings_add(found, KIND_LAUNCH_BOUND, SECTION_STEP_TIME, share_severity(gpu.idle));
    if (!f)
        return;
    f->share = gpu.idle;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    if (largest == LEAT_CLOCK_LAUNCH)
        describe_launches(f, gpu.idle, wall_ms);
    else
        describe_phase(f, gpu.idle, wall_ms, clock_phase_names[largest], largest_idle);
    finding_prove(f, EVIDENCE_GPU_IDLE_IN_COMPUTE, gpu.idle, "gpu_clock WHERE pid = %lld",
                  (long long)r->pid);
    f->predicted_gain = gain_of(wall_ms, wall_ms * (1 - gpu.idle));
    f->at_most = 1;
}
