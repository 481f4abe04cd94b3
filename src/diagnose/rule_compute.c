/* rule_compute.c: COMPUTE-BOUND: the model itself takes the time, which is the healthy case. It
 * fires only when nothing else is wrong with the step time, and only when the input was visible:
 * where the hook on the DataLoader is missing, forward includes waiting for batches. */
#include "diagnose/rule.h"

#include <leat/recorder.h>

#define COMPUTE_SHARE 0.90

void rule_compute(const struct facts *facts, struct findings *found)
{
    const struct rank_facts *r = judged_rank(facts);
    if (!r || step_time_warned(found) || !(r->signals & LEAT_SIGNAL_FETCH))
        return;
    const int parts[] = {PHASE_FORWARD, PHASE_BACKWARD, PHASE_OPTIMIZER};
    double share = 0;
    int largest = PHASE_FORWARD;
    for (int i = 0; i < 3; i++) {
        share += phase_share(r, parts[i]);
        if (phase_share(r, parts[i]) > phase_share(r, largest))
            largest = parts[i];
    }
    struct gpu_share gpu; /* while the device works, the host's waiting is compute too */
    int clocked = gpu_share_of(facts, r, ALL_CLOCK_PHASES, &gpu) && 1 - gpu.idle >= COMPUTE_SHARE;
    if (share < COMPUTE_SHARE && !clocked)
        return;
    struct finding *f = findings_add(found, KIND_COMPUTE_BOUND, SECTION_STEP_TIME, SEVERITY_INFO);
    if (!f)
        return;
    f->rank = facts->rank_count > 1 ? r->rank : -1;
    if (share < COMPUTE_SHARE)
        finding_say(f,
                    "The GPU is busy %.0f %% of the time, so waiting on the host costs nothing. "
                    "The step takes %.2f ms.",
                    100 * (1 - gpu.idle), step_mean(r));
    else
        finding_say(f,
                    "Forward, backward and optimizer take %.0f %% of the step time; the largest is "
                    "%s with %.2f ms of %.2f ms per step.",
                    100 * share, leat_phase_names[largest], phase_mean(r, largest), step_mean(r));
    const char *advice =
        largest == PHASE_FORWARD    ? "The input is fast enough. To speed up forward, use "
                                      "torch.compile, lower precision, or a larger batch."
        : largest == PHASE_BACKWARD ? "The input is fast enough. To speed up backward, use "
                                      "torch.compile, lower precision, or a larger batch."
                                    : "The input is fast enough. To speed up the optimizer, use "
                                      "fused=True or foreach=True if it supports them.";
    finding_advise(f, ACTION_SPEED_UP_PHASE, "%s", advice);
    finding_argument(f, "phase=%s", leat_phase_names[largest]);
    note_missing_loader(f, facts);
    if (clocked)
        finding_prove(f, EVIDENCE_GPU_BUSY, 1 - gpu.idle, "gpu_clock WHERE pid = %lld",
                      (long long)r->pid);
    finding_prove(f, EVIDENCE_COMPUTE_SHARE, share, "steps WHERE id>>40 = %d", r->rank);
    for (int i = 0; i < 3; i++)
        finding_prove_named(f, EVIDENCE_PHASE_TIME, leat_phase_names[parts[i]],
                            phase_mean(r, parts[i]), "steps WHERE id>>40 = %d", r->rank);
}
