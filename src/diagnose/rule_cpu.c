/* rule_cpu.c: HIGH CPU: all cores of the machine are busy. For training on the CPU that is
 * normal: an info, which gives the share of other processes. A run on a GPU needs free cores to
 * prepare batches: a warning. */
#include "diagnose/rule.h"

#include <math.h>

#define HIGH_RATIO    0.90 /* of all cores, on average over the kept steps */
#define LEAST_SAMPLES 3
#define FOREIGN       0.25 /* of all cores, used by others: then the text names them */

void rule_cpu(const struct facts *facts, struct findings *found)
{
    double from_ms, to_ms, all = 0, own = 0;
    size_t n = 0;
    kept_interval(typical_rank(facts), &from_ms, &to_ms);
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->t_ms < from_ms || s->t_ms > to_ms || isnan(s->cpu_ratio))
            continue;
        all += s->cpu_ratio;
        own += isnan(s->run_cpu_ratio) ? s->cpu_ratio : s->run_cpu_ratio;
        n++;
    }
    if (n < LEAST_SAMPLES || all / (double)n < HIGH_RATIO)
        return;
    all /= (double)n;
    own /= (double)n;
    int has_gpu = facts->gpu_sample_count > 0, foreign = all - own >= FOREIGN;
    struct finding *f = findings_add(found, KIND_HIGH_CPU, SECTION_SYSTEM,
                                     has_gpu ? SEVERITY_WARNING : SEVERITY_INFO);
    if (foreign) {
        finding_say(f,
                    "The machine's cores were busy %.0f %% of the time: %.0f %% with this run, "
                    "%.0f %% with other processes.",
                    100 * all, 100 * own, 100 * (all - own));
        finding_advise(f, ACTION_STOP_PROCESSES,
                       "Stop the other processes, or run on another machine.");
    } else {
        finding_say(
            f, "The machine's cores were busy %.0f %% of the time, %.0f %% with this run%s.",
            100 * all, 100 * own, has_gpu ? "" : "; that is normal for training on the CPU");
        finding_advise(
            f, has_gpu ? ACTION_FREE_CORES : ACTION_NOTHING,
            has_gpu
                ? "Free CPU cores, so that the GPU gets its batches in time: use fewer DataLoader "
                  "workers, cheaper transforms, or torch.set_num_threads(1) in the workers."
                : "Nothing needs to change.");
    }
    finding_prove(f, EVIDENCE_MACHINE_CPU, all, "sys_samples");
    finding_prove(f, EVIDENCE_RUN_CPU, own, "sys_samples");
}
