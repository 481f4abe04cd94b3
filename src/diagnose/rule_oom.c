/* rule_oom.c: OOM KILL: the kernel killed a process of the run because memory ran out, or torch
 * could not allocate on the device. The kernel's counter is for the whole machine or cgroup, so
 * it counts only when this run lost a process. Without a counter (no rights, old kernel),
 * SIGKILL with almost no memory left means the same, with less confidence. */
#include "diagnose/rule.h"

#include <math.h>

#define SIGNAL_KILL  9
#define GIB          (1024.0 * 1024.0 * 1024.0)
#define NOTHING_LEFT 0.05 /* share of memory available in the last sample */

/* The run was killed; or a shell or torchrun reports it (128 + 9, -9); or a worker was killed. */
static int lost_a_process(const struct facts *facts)
{
    return facts->signal == SIGNAL_KILL || facts->exit_status == 128 + SIGNAL_KILL ||
           facts_run_end(facts) == RUN_KILLED || exception_with(facts, "signal: Killed") ||
           (facts->rank_count > 1 && facts_run_end(facts) == RUN_FAILED);
}

static const struct sys_sample *last_sample(const struct facts *facts)
{
    for (size_t i = facts->sys_sample_count; i > 0; i--)
        if (facts->sys_samples[i - 1].memory_total > 0)
            return &facts->sys_samples[i - 1];
    return NULL;
}

static void by_kernel(const struct facts *facts, struct findings *found)
{
    const struct sys_sample *last = last_sample(facts);
    double left = last ? last->memory_available / last->memory_total : NAN;
    int counted = facts->oom_kills > 0;
    if (!lost_a_process(facts) || !(counted || (facts->oom_kills < 0 && left <= NOTHING_LEFT)))
        return;
    struct finding *f = findings_add(found, KIND_OOM_KILL, SECTION_PROCESS, SEVERITY_CRITICAL);
    if (!f)
        return;
    f->stops_run = 1;
    f->confidence = counted ? 1 : 0.6;
    if (counted)
        finding_say(f,
                    "The kernel killed a process of the run because memory ran out (killed "
                    "processes: %lld).",
                    (long long)facts->oom_kills);
    else
        finding_say(f,
                    "The run was killed when %.1f %% of memory was left: most likely the kernel "
                    "killed it because memory ran out.",
                    100 * left);
    finding_advise(f, ACTION_USE_LESS_HOST_MEMORY,
                   "Use less host memory: fewer DataLoader workers, a smaller prefetch_factor, or "
                   "a dataset that is not kept in memory. Or raise the memory limit.");
    finding_prove(f, EVIDENCE_KILLED_PROCESSES, (double)facts->oom_kills,
                  "meta WHERE key = 'oom_kills'");
    if (last)
        finding_prove(f, EVIDENCE_MEMORY_AVAILABLE, last->memory_available, "sys_samples");
}

static void on_device(const struct facts *facts, struct findings *found)
{
    const struct proc_fact *p = exception_with(facts, "CUDA out of memory");
    if (!p)
        p = exception_with(facts, "OutOfMemoryError");
    if (!p || !ended_badly(facts))
        return;
    struct finding *f = findings_add(found, KIND_OOM_KILL, SECTION_PROCESS, SEVERITY_CRITICAL);
    if (!f)
        return;
    f->stops_run = 1;
    f->rank = p->rank;
    f->pid = p->pid;
    finding_say(f, "The run ended because the GPU had no free memory: %s.", p->exception);
    finding_advise(f, ACTION_USE_LESS_DEVICE_MEMORY,
                   "Use a smaller batch with gradient accumulation, activation checkpointing, or "
                   "lower precision.");
    finding_prove(f, EVIDENCE_FAILED_PROCESSES, 1, "processes WHERE pid = %lld", (long long)p->pid);
}

void rule_oom(const struct facts *facts, struct findings *found)
{
    by_kernel(facts, found);
    on_device(facts, found);
}
