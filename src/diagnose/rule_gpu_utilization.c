/* rule_gpu_utilization.c: LOW_GPU_UTILIZATION and MODERATE_GPU_UTILIZATION: the devices of this
 * run were idle. Utilization is a symptom, so the text names the step-time verdict that explains
 * it. Only GPUs of this run are in the database. */
#include "diagnose/rule.h"

#include <math.h>
#include <string.h>

#define LOW      0.30 /* verdicts.md */
#define MODERATE 0.70
/* NVML averages over up to a second: fewer samples are not enough. */
#define LEAST_SAMPLES 5

static const char *step_time_verdict(const struct findings *found)
{
    const struct finding *best = NULL;
    for (size_t i = 0; i < found->count; i++) {
        const struct finding *f = &found->items[i];
        if (f->section == SECTION_STEP_TIME &&
            (!best || f->share > best->share ||
             (f->share == best->share && f->severity > best->severity)))
            best = f;
    }
    return finding_kind_label(best ? best->kind : KIND_INSUFFICIENT_DATA);
}

static void judge(const struct facts *facts, size_t from, size_t to, struct findings *found)
{
    double from_ms, to_ms, sum = 0;
    size_t n = 0;
    kept_interval(typical_rank(facts), &from_ms, &to_ms);
    for (size_t i = from; i < to; i++) {
        const struct gpu_sample *s = &facts->gpu_samples[i];
        if (s->t_ms >= from_ms && s->t_ms <= to_ms && !isnan(s->utilization)) {
            sum += s->utilization;
            n++;
        }
    }
    if (n < LEAST_SAMPLES || sum / (double)n >= MODERATE)
        return;
    double mean = sum / (double)n;
    const char *gpu = facts->gpu_samples[from].gpu, *verdict = step_time_verdict(found);
    struct finding *f =
        findings_add(found, mean < LOW ? KIND_LOW_GPU_UTILIZATION : KIND_MODERATE_GPU_UTILIZATION,
                     SECTION_SYSTEM, mean < LOW ? SEVERITY_WARNING : SEVERITY_INFO);
    finding_say(f, "GPU %s was busy %.0f %% of the time; the step time is %s.", gpu, 100 * mean,
                verdict);
    finding_advise(f, ACTION_FOLLOW_VERDICT,
                   "Follow the step-time verdict %s: it says what the GPU waits for.", verdict);
    finding_argument(f, "verdict=%s", verdict);
    finding_prove(f, EVIDENCE_UTILIZATION, mean, "gpu_samples WHERE gpu = '%s'", gpu);
}

void rule_gpu_utilization(const struct facts *facts, struct findings *found)
{
    for (size_t i = 0, from = 0; i < facts->gpu_sample_count; i++)
        if (i + 1 == facts->gpu_sample_count ||
            strcmp(facts->gpu_samples[i].gpu, facts->gpu_samples[i + 1].gpu) != 0) {
            judge(facts, from, i + 1, found);
            from = i + 1;
        }
}
