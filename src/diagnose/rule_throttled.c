/* rule_throttled.c: THROTTLED: a device of this run lowered its clocks, and why. Two reasons are
 * healthy: a busy GPU at its power limit (`power_cap`), and a GPU without work. */
#include "diagnose/rule.h"

#include <stdio.h>
#include <string.h>

#define LASTING_SHARE 0.05 /* share of samples: fewer are not lasting */
#define SLOWING_SHARE 0.20 /* from here on it slows the whole run */
#define LEAST_SAMPLES 5

/* The first reason that is not harmless, copied; "" when there is none. */
static void reason_of(const char *reasons, char *ret_reason, size_t bytes)
{
    static const char *const harmless[] = {"power_cap", "idle", "application_clocks",
                                           "display_clocks", "none"};
    ret_reason[0] = 0;
    while (*reasons) {
        size_t length = strcspn(reasons, ",");
        int matters = length > 0;
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            if (strlen(harmless[i]) == length && memcmp(harmless[i], reasons, length) == 0)
                matters = 0;
        if (matters) {
            snprintf(ret_reason, bytes, "%.*s", (int)length, reasons);
            return;
        }
        reasons += length + (reasons[length] == ',');
    }
}

static void judge(const struct facts *facts, size_t from, size_t to, struct findings *found)
{
    char reason[64] = "", each[64];
    size_t n = to - from, throttled = 0;
    for (size_t i = from; i < to; i++) {
        reason_of(facts->gpu_samples[i].throttle, each, sizeof each);
        if (each[0]) {
            throttled++;
            memcpy(reason, each, sizeof reason);
        }
    }
    double share = (double)throttled / (double)n;
    if (n < LEAST_SAMPLES || share < LASTING_SHARE)
        return;
    const char *gpu = facts->gpu_samples[from].gpu;
    struct finding *f = findings_add(found, KIND_THROTTLED, SECTION_SYSTEM,
                                     share >= SLOWING_SHARE ? SEVERITY_CRITICAL : SEVERITY_WARNING);
    if (!f)
        return;
    f->stops_run = share >= SLOWING_SHARE;
    finding_say(f, "GPU %s lowered its clocks in %.0f %% of the samples. Reason: %s.", gpu,
                100 * share, reason);
    int thermal = strstr(reason, "therm") != NULL;
    finding_advise(f, thermal ? ACTION_CHECK_COOLING : ACTION_CHECK_POWER, "%s",
                   thermal ? "Check the cooling of this GPU: air flow, fans and dust."
                           : "Check the power supply and the health of this GPU (nvidia-smi -q "
                             "-d PERFORMANCE,POWER).");
    finding_prove(f, EVIDENCE_THROTTLED_SHARE, share, "gpu_samples WHERE gpu = '%s'", gpu);
}

void rule_throttled(const struct facts *facts, struct findings *found)
{
    for (size_t i = 0, from = 0; i < facts->gpu_sample_count; i++)
        if (i + 1 == facts->gpu_sample_count ||
            strcmp(facts->gpu_samples[i].gpu, facts->gpu_samples[i + 1].gpu) != 0) {
            judge(facts, from, i + 1, found);
            from = i + 1;
        }
}
