/* rule_ram.c: HIGH RAM: the machine (or the cgroup) is nearly out of memory, whatever process
 * uses it. */
#include "diagnose/rule.h"

#include <math.h>

#define GIB      (1024.0 * 1024.0 * 1024.0)
#define WARNING  0.08 /* share of memory left: the counterpart of 92 % pressure */
#define CRITICAL 0.03

void rule_ram(const struct facts *facts, struct findings *found)
{
    const struct sys_sample *worst = NULL;
    double least = WARNING;
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->memory_total > 0 && s->memory_available / s->memory_total <= least) {
            least = s->memory_available / s->memory_total;
            worst = s;
        }
    }
    if (!worst)
        return;
    struct finding *f = findings_add(found, KIND_HIGH_RAM, SECTION_SYSTEM,
                                     least <= CRITICAL ? SEVERITY_CRITICAL : SEVERITY_WARNING);
    finding_say(f, "At the lowest point only %.2f of %.1f GiB of memory were available (%.1f %%).",
                worst->memory_available / GIB, worst->memory_total / GIB, 100 * least);
    finding_advise(f, ACTION_USE_LESS_HOST_MEMORY,
                   "Use fewer DataLoader workers or a smaller prefetch_factor, keep less data in "
                   "memory, or free memory that other processes hold.");
    finding_prove(f, EVIDENCE_MEMORY_AVAILABLE, worst->memory_available, "sys_samples");
    finding_prove(f, EVIDENCE_MEMORY_TOTAL, worst->memory_total, "sys_samples");
}
