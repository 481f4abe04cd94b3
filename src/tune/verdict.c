/* verdict.c: is the loader or the model the bottleneck? Compares the rate of the loader, with the
 * current and with the best settings, to the rate of the model on a cached batch. */
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>

/* Closer rates count as equal. */
#define EVEN_RATIO 1.05

/* Above this share of the rate with a cached batch, handing over costs more than making samples. */
#define HAND_OVER_RATIO 0.5
/* If other programs use more than a fifth of the CPUs, rates change more by that than by settings.
 */
#define LEFT_RATIO 0.8

int tune_disturbed(const struct tune_result *r)
{
    return r->all_cpus - r->others_cpus < LEFT_RATIO * fmin(r->limits.cpus, r->all_cpus);
}

/* Samples/s of the current settings over an epoch; NaN when they did not work. */
static double rate_now(const struct tune_result *r)
{
    if (r->now < 0 || r->rows[r->now].status != TUNE_OK)
        return NAN;
    return tune_score(&r->facts, &r->rows[r->now], r->facts.now.persistent);
}

static double rate_best(const struct tune_result *r)
{
    struct tune_config choice;
    if (search_choice(r, &choice) < 0)
        return NAN;
    return tune_score(&r->facts, &r->rows[tune_best(r)], choice.persistent);
}

static void judge_alone(const struct tune_result *r, struct tune_verdict *v, double now,
                        double best)
{
    if (!(best > 0) && (r->interrupted || r->out_of_time || r->row_count == 0))
        snprintf(v->sentence, sizeof v->sentence,
                 "The search ended before any settings were measured: no recommendation.");
    else if (!(best > 0))
        snprintf(v->sentence, sizeof v->sentence,
                 "No settings worked: see the errors above. No recommendation.");
    else if (!(now > 0))
        snprintf(v->sentence, sizeof v->sentence,
                 "Your settings do not work here; these give %.0f samples/s.", best);
    else if (v->gain < EVEN_RATIO)
        snprintf(v->sentence, sizeof v->sentence,
                 "Your settings are as good as the best found (%.0f samples/s). The model was not "
                 "measured.",
                 now);
    else
        snprintf(v->sentence, sizeof v->sentence,
                 "The loader can be %.1f times as fast: %.0f samples/s instead of %.0f. The model "
                 "was not measured.",
                 v->gain, best, now);
}

static void judge_against(const struct tune_result *r, struct tune_verdict *v, double now,
                          double best, double model)
{
    const char *shared = r->facts.accelerator ? "" : " Model and workers share these CPUs.";
    if (now >= model / EVEN_RATIO) {
        v->bottleneck = BOTTLENECK_MODEL;
        v->factor = now / model;
        snprintf(v->sentence, sizeof v->sentence,
                 "The model is the bottleneck: it takes %.0f samples/s, and the loader gives %.1f "
                 "times as much with your settings.%s",
                 model, v->factor, shared);
        return;
    }
    v->bottleneck = BOTTLENECK_LOADER;
    v->factor = now > 0 ? model / now : NAN;
    if (!(now > 0))
        snprintf(v->sentence, sizeof v->sentence,
                 "The loader is the bottleneck: your settings do not work here. The best found "
                 "give %.0f samples/s; the model takes %.0f.%s",
                 best, model, shared);
    else if (best >= model / EVEN_RATIO)
        snprintf(v->sentence, sizeof v->sentence,
                 "The loader is the bottleneck: the model could take %.1f times what it gives "
                 "(%.0f against %.0f samples/s). With the settings below it gives %.0f: enough.%s",
                 v->factor, model, now, best, shared);
    else if (r->cached_rate < model && best > HAND_OVER_RATIO * r->cached_rate) {
        v->limit = LIMIT_HAND_OVER;
        snprintf(v->sentence, sizeof v->sentence,
                 "The loader is the bottleneck: the model could take %.1f times what it gives. The "
                 "best settings give %.0f samples/s; handing over batches alone allows %.0f, the "
                 "model takes %.0f: use larger batches, or fewer bytes per sample.%s",
                 v->factor, best, r->cached_rate, model, shared);
    } else {
        v->limit = LIMIT_SAMPLE;
        v->sample_cheaper = fmin(model, r->cached_rate) / best;
        snprintf(v->sentence, sizeof v->sentence,
                 "The loader is the bottleneck: the model could take %.1f times what it gives. The "
                 "best settings give %.0f samples/s, the model takes %.0f: a sample must become "
                 "%.1f times cheaper.%s",
                 v->factor, best, model, v->sample_cheaper, shared);
    }
}

void tune_judge(const struct tune_result *result, struct tune_verdict *ret_verdict)
{
    double now = rate_now(result), best = rate_best(result);
    double model = result->step_samples / result->step_s;
    struct tune_verdict v = {.factor = NAN, .gain = best / now, .sample_cheaper = NAN};
    if (best > 0 && isfinite(model) && model > 0)
        judge_against(result, &v, now, best, model);
    else
        judge_alone(result, &v, now, best);
    *ret_verdict = v;
}
