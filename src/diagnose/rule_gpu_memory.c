/* rule_gpu_memory.c: HIGH GPU MEM: a device of this run is nearly full as its driver reports it:
 * torch's reserve, the CUDA context and other processes included. A large reserve is no danger
 * (see rule_memory_pressure.c), so this is an info; it is a warning where torch's figure is not
 * known, or where something else fills the device. */
#include "diagnose/rule.h"

#include <math.h>

#define GIB        (1024.0 * 1024.0 * 1024.0)
#define HIGH_RATIO 0.92 /* as HIGH PRESSURE */
/* Share of the used memory from which torch's reserve is what fills the device. */
#define RESERVE_SHARE 0.80

void rule_gpu_memory(const struct facts *facts, struct findings *found)
{
    const struct gpu_sample *peak = NULL;
    double worst = HIGH_RATIO, reserved = 0;
    for (size_t i = 0; i < facts->gpu_sample_count; i++) {
        const struct gpu_sample *s = &facts->gpu_samples[i];
        if (s->memory_used / s->memory_total >= worst) {
            worst = s->memory_used / s->memory_total;
            peak = s;
        }
    }
    for (size_t i = 0; i < facts->memory_sample_count; i++)
        if (facts->memory_samples[i].reserved > reserved)
            reserved = facts->memory_samples[i].reserved;
    if (!peak)
        return;
    int is_reserve = reserved >= RESERVE_SHARE * peak->memory_used;
    struct finding *f = findings_add(found, KIND_HIGH_GPU_MEM, SECTION_SYSTEM,
                                     is_reserve ? SEVERITY_INFO : SEVERITY_WARNING);
    finding_say(f, "GPU %s used %.1f of %.1f GiB of memory (%.0f %%)%s.", peak->gpu,
                peak->memory_used / GIB, peak->memory_total / GIB, 100 * worst,
                is_reserve ? ", mostly memory that torch keeps in reserve" : "");
    finding_advise(
        f, is_reserve ? ACTION_NOTHING : ACTION_USE_LESS_DEVICE_MEMORY,
        is_reserve
            ? "Nothing needs to change: torch frees its reserve before an allocation fails."
            : "Check which other processes use the GPU (nvidia-smi), or use a smaller batch.");
    finding_prove(f, EVIDENCE_MEMORY_USED, peak->memory_used, "gpu_samples WHERE gpu = '%s'",
                  peak->gpu);
    finding_prove(f, EVIDENCE_MEMORY_TOTAL, peak->memory_total, "gpu_samples WHERE gpu = '%s'",
                  peak->gpu);
}
