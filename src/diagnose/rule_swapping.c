/* rule_swapping.c: SWAPPING: memory goes to disk and comes back during the run. Pages that were
 * swapped out once and stay there cost nothing; pages that come back delay the thread that needs
 * them. */
#include "diagnose/rule.h"

#include <math.h>

#define MIB (1024.0 * 1024.0)
/* 1 MiB/s swapped in is about 250 page faults per second that wait for a disk: at 0.1 ms (NVMe)
 * to 10 ms (hard disk) each, at least 2.5 % of one thread's time. Less is normal. */
#define SWAP_BYTES_PER_S MIB
#define CRITICAL_FACTOR  10.0
#define LEAST_SAMPLES    3

void rule_swapping(const struct facts *facts, struct findings *found)
{
    const struct sys_sample *first = NULL, *last = NULL;
    double in = 0, out = 0;
    size_t n = 0;
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (isnan(s->swap_in_bytes) || isnan(s->swap_out_bytes))
            continue;
        if (!first)
            first = s;
        last = s;
        n++;
    }
    if (n < LEAST_SAMPLES || last->t_ms <= first->t_ms)
        return;
    double seconds = (last->t_ms - first->t_ms) / 1000;
    in = (last->swap_in_bytes - first->swap_in_bytes) / seconds;
    out = (last->swap_out_bytes - first->swap_out_bytes) / seconds;
    if (in < SWAP_BYTES_PER_S)
        return;
    struct finding *f = findings_add(found, KIND_SWAPPING, SECTION_SYSTEM,
                                     in >= CRITICAL_FACTOR * SWAP_BYTES_PER_S ? SEVERITY_CRITICAL
                                                                              : SEVERITY_WARNING);
    finding_say(f, "The machine swaps memory: %.1f MiB/s in and %.1f MiB/s out on average.",
                in / MIB, out / MIB);
    finding_advise(f, ACTION_USE_LESS_HOST_MEMORY,
                   "Use less memory: fewer DataLoader workers, a smaller prefetch_factor, less "
                   "data kept in memory, or fewer other processes.");
    finding_prove(f, EVIDENCE_SWAPPED_IN, in, "sys_samples");
    finding_prove(f, EVIDENCE_SWAPPED_OUT, out, "sys_samples");
}
