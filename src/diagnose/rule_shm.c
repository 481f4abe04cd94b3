/* rule_shm.c: SHM FULL: /dev/shm is near its limit. DataLoader workers hand over batches through
 * it; when it is full, a worker is killed by a bus error. Containers have 64 MB by default. */
#include "diagnose/rule.h"

#include <math.h>

#define MIB     (1024.0 * 1024.0)
#define WARNING 0.90 /* with the default 64 MB, one or two batches are left */

void rule_shm(const struct facts *facts, struct findings *found)
{
    const struct sys_sample *peak = NULL;
    double most = WARNING;
    for (size_t i = 0; i < facts->sys_sample_count; i++) {
        const struct sys_sample *s = &facts->sys_samples[i];
        if (s->shm_total > 0 && s->shm_used / s->shm_total >= most) {
            most = s->shm_used / s->shm_total;
            peak = s;
        }
    }
    const struct proc_fact *died = exception_with(facts, "bus error");
    if (!died)
        died = exception_with(facts, "insufficient shared memory");
    if (!peak && !died)
        return;
    int stopped = died && ended_badly(facts);
    struct finding *f = findings_add(found, KIND_SHM_FULL, SECTION_SYSTEM,
                                     stopped ? SEVERITY_CRITICAL : SEVERITY_WARNING);
    if (!f)
        return;
    f->stops_run = stopped;
    if (peak)
        finding_say(f, "/dev/shm held %.0f of %.0f MiB (%.0f %%)%s.", peak->shm_used / MIB,
                    peak->shm_total / MIB, 100 * most,
                    stopped ? ", and a worker died because of it" : "");
    else
        finding_say(f, "A DataLoader worker failed because /dev/shm was full: %s.",
                    died->exception);
    finding_advise(f, ACTION_RAISE_SHM,
                   "Give the container more shared memory (docker run --shm-size=8g, or "
                   "--ipc=host), or use fewer workers or a smaller prefetch_factor.");
    if (peak)
        finding_prove(f, EVIDENCE_SHM_USED, peak->shm_used, "sys_samples");
    if (died)
        finding_prove(f, EVIDENCE_FAILED_PROCESSES, 1, "processes WHERE pid = %lld",
                      (long long)died->pid);
}
