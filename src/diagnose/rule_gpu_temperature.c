/* rule_gpu_temperature.c: HIGH GPU TEMP: a device of this run works close to the temperature at
 * which it lowers its clocks. One hot sample is not enough; a tenth of the samples is. */
#include "diagnose/rule.h"

#include <math.h>
#include <string.h>

#define MARGIN_C 5.0 /* below the device's own limit */
#define FALLBACK_C                                                                                 \
    85.0 /* without a reported limit: the limit of most data-centre cards, less the margin */
#define LASTING_SHARE 0.10
#define LEAST_SAMPLES 5

static void judge(const struct facts *facts, size_t from, size_t to, struct findings *found)
{
    size_t hot = 0, n = 0;
    double most = 0, limit = NAN;
    for (size_t i = from; i < to; i++) {
        const struct gpu_sample *s = &facts->gpu_samples[i];
        if (isnan(s->temperature_c))
            continue;
        double high = s->temperature_limit_c > 0 ? s->temperature_limit_c - MARGIN_C : FALLBACK_C;
        n++;
        hot += s->temperature_c >= high;
        if (s->temperature_c > most)
            most = s->temperature_c;
        limit = s->temperature_limit_c > 0 ? s->temperature_limit_c : NAN;
    }
    if (n < LEAST_SAMPLES || (double)hot < LASTING_SHARE * (double)n)
        return;
    const char *gpu = facts->gpu_samples[from].gpu;
    struct finding *f = findings_add(found, KIND_HIGH_GPU_TEMP, SECTION_SYSTEM, SEVERITY_WARNING);
    finding_say(f, "GPU %s reached %.0f C. It was near its limit in %.0f %% of the samples.", gpu,
                most, 100.0 * (double)hot / (double)n);
    finding_advise(
        f, ACTION_CHECK_COOLING,
        "Check the cooling of this GPU (air flow, fans, dust): a hot GPU lowers its clocks.");
    finding_prove(f, EVIDENCE_TEMPERATURE, most, "gpu_samples WHERE gpu = '%s'", gpu);
    finding_prove(f, EVIDENCE_TEMPERATURE_LIMIT, limit, "gpu_samples WHERE gpu = '%s'", gpu);
}

void rule_gpu_temperature(const struct facts *facts, struct findings *found)
{
    for (size_t i = 0, from = 0; i < facts->gpu_sample_count; i++)
        if (i + 1 == facts->gpu_sample_count ||
            strcmp(facts->gpu_samples[i].gpu, facts->gpu_samples[i + 1].gpu) != 0) {
            judge(facts, from, i + 1, found);
            from = i + 1;
        }
}
