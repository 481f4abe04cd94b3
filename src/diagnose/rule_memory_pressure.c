/* rule_memory_pressure.c: HIGH PRESSURE: memory came near its capacity: what torch allocated on a
 * device, or the private memory of all processes of the run on the host.
 *
 * Allocated, not reserved: torch's allocator keeps freed memory in reserve and frees it before an
 * allocation fails, so a high reserve is no danger. */
#include "diagnose/rule.h"

#include <math.h>

#define GIB               (1024.0 * 1024.0 * 1024.0)
#define PRESSURE_WARNING  0.92 /* verdicts.md */
#define PRESSURE_CRITICAL 0.97

static enum severity pressure_severity(double ratio)
{
    return ratio >= PRESSURE_CRITICAL ? SEVERITY_CRITICAL : SEVERITY_WARNING;
}

static void on_device(const struct facts *facts, struct findings *found)
{
    double capacity = device_capacity(facts);
    const struct memory_sample *peak = NULL;
    for (size_t i = 0; i < facts->memory_sample_count; i++)
        if (!peak || facts->memory_samples[i].allocated > peak->allocated)
            peak = &facts->memory_samples[i];
    if (!peak || !(peak->allocated >= PRESSURE_WARNING * capacity))
        return;
    double ratio = peak->allocated / capacity;
    struct finding *f =
        findings_add(found, KIND_HIGH_PRESSURE, SECTION_MEMORY, pressure_severity(ratio));
    if (!f)
        return;
    f->rank = peak->rank;
    finding_say(f, "Rank %d allocated %.1f of %.1f GiB (%.0f %%) on device %d.", peak->rank,
                peak->allocated / GIB, capacity / GIB, 100 * ratio, peak->device);
    finding_advise(f, ACTION_USE_LESS_DEVICE_MEMORY,
                   "A slightly larger batch or sequence would fail. Use a smaller batch with "
                   "gradient accumulation, activation checkpointing, or lower precision.");
    finding_prove(f, EVIDENCE_PEAK_ALLOCATED, peak->allocated,
                  "memory_samples WHERE rank = %d AND device = %d", peak->rank, peak->device);
    finding_prove(f, EVIDENCE_CAPACITY, capacity, "gpu_samples");
}

/* The sum over processes at one time: of each its last sample within two seconds, which is
 * longer than the interval between samples of a running process. */
static double run_bytes_at(const struct facts *facts, double t_ms)
{
    double sum = 0, latest = NAN;
    for (size_t i = 0; i < facts->proc_sample_count; i++) {
        const struct proc_sample *p = &facts->proc_samples[i];
        if (i > 0 && p[-1].pid != p->pid) {
            sum += isnan(latest) ? 0 : latest;
            latest = NAN;
        }
        if (p->t_ms <= t_ms && p->t_ms > t_ms - 2000 && !isnan(private_bytes(p)))
            latest = private_bytes(p);
    }
    return sum + (isnan(latest) ? 0 : latest);
}

static void on_host(const struct facts *facts, struct findings *found)
{
    double capacity = host_capacity(facts), peak = 0;
    /* The run can be near the capacity only when the machine is short of memory: other times
     * need no sum. */
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->memory_available > (1 - PRESSURE_WARNING) * 2 * capacity)
            continue;
        double bytes = run_bytes_at(facts, s->t_ms);
        if (bytes > peak)
            peak = bytes;
    }
    if (!(peak >= PRESSURE_WARNING * capacity))
        return;
    double ratio = peak / capacity;
    struct finding *f =
        findings_add(found, KIND_HIGH_PRESSURE, SECTION_MEMORY, pressure_severity(ratio));
    if (!f)
        return;
    finding_say(f, "The processes of the run used %.1f of %.1f GiB (%.0f %%) of host memory.",
                peak / GIB, capacity / GIB, 100 * ratio);
    finding_advise(f, ACTION_USE_LESS_HOST_MEMORY,
                   "If memory runs out, the kernel kills a process. Use fewer DataLoader workers "
                   "or a smaller prefetch_factor, or keep less of the dataset in memory.");
    finding_prove(f, EVIDENCE_PEAK_OF_RUN, peak, "proc_samples");
    finding_prove(f, EVIDENCE_CAPACITY, capacity, "sys_samples");
}

void rule_memory_pressure(const struct facts *facts, struct findings *found)
{
    on_device(facts, found);
    on_host(facts, found);
}
