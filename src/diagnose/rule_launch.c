/* rule_launch.c: LAUNCH-BOUND: inside forward, backward and optimizer the device waits for the host
 * to launch something. Only the clock of the device can tell, and it sees pauses of 250 us and
 * more: below that, kernels that are too small for their launches are not found by this rule. */
#include "diagnose/rule.h"

#include <string.h>

#define COMPUTE_PHASES "forward backward optimizer"

static const char *largest_gap(const struct facts *facts, const struct rank_facts *r,
                               double *ret_idle)
{
    static const char *const names[] = {"forward", "backward", "optimizer"};
    const char *largest = names[0];
    *ret_idle = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gpu_share gpu = {0};
        if (gpu_share_of(facts, r, names[i], &gpu) && gpu.idle > *ret_idle) {
            *ret_idle = gpu.idle;
            largest = names[i];
        }
    }
    return largest;
}

void rule_launch(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    struct gpu_share gpu;
    if (!r || !gpu_share_of(facts, r, COMPUTE_PHASES, &gpu) || gpu.idle < BOUND_WARNING)
        return;
    double wall_ms = r->kept_ms / (double)r->kept, largest_idle;
    if (gpu.idle * wall_ms < COST_FLOOR * r->cost_ms)
        return;
    const char *largest = largest_gap(facts, r, &largest_idle);
    struct finding *f =
        findings_add(found, "LAUNCH-BOUND", SECTION_STEP_TIME, share_severity(gpu.idle));
    if (!f)
        return;
    f->share = gpu.idle;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    finding_say(
        f,
        "Inside forward, backward and optimizer the GPU stands idle for %.0f %% of the time, "
        "%.2f ms a step, while Python is at work between two launches; most of it in the %s "
        "(%.0f %%).",
        100 * gpu.idle, gpu.idle * wall_ms, largest, 100 * largest_idle);
    finding_advise(f,
                   "Take out of the %s what is no work for the GPU (Python loops, numpy, logging, "
                   "hooks), or do it while the GPU has work queued; torch.compile and CUDA graphs "
                   "launch with less Python.",
                   largest);
    finding_prove(f, "GPU idle in compute", gpu.idle, "ratio", "gpu_clock WHERE pid = %lld",
                  (long long)r->pid);
    f->predicted_gain = gain_of(wall_ms, wall_ms * (1 - gpu.idle));
}
