/* cause_common.c: what several causes of a slow input share: places, evidence, predictions. */
#include "diagnose/cause.h"

#include "facts/device_time.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAKING "making a batch" /* the whole of which a line's share is a part */

void place_line(const struct loader_view *view, const struct line_fact *line, struct finding *f)
{
    char place[sizeof((struct input_line *)0)->file + 16];
    if (!line)
        return;
    snprintf(place, sizeof place, "%s:%d", line->line->file, line->line->line);
    finding_place(f, place, loader_view_line_share(view, line), MAKING);
    for (size_t i = 0; i < view->line_count; i++) {
        const struct line_fact *l = &view->lines[i];
        if (!l->below || l->below->line != line->line->line || l->line->part != line->line->part ||
            strcmp(l->below->file, line->line->file) != 0)
            continue;
        snprintf(place, sizeof place, "%s:%d", l->line->file, l->line->line);
        finding_place(f, place, loader_view_line_share(view, l), MAKING);
        return;
    }
}

void place_loader(const struct loader_view *view, struct finding *f)
{
    const struct line_fact *sample = loader_view_top_line(view, LEAT_PART_SAMPLE);
    const struct line_fact *collate = loader_view_top_line(view, LEAT_PART_COLLATE);
    place_line(view, collate && (!sample || collate->ms > sample->ms) ? collate : sample, f);
    finding_place(f, view->loader->where, view->input_ms / view->wall_ms, "the step");
}

int workers_limit(const struct loader_view *view)
{
    const double late =
        0.7; /* then a batch's worker usually computes the next batch when it is asked for one */
    if (view->worker_busy >= BUSY_SHARE)
        return 1;
    return view->worker_busy >= late && view->unpickle.mean >= HAND_OVER_SLOW &&
           loader_view_pipe_bytes(view) < FEW_BYTES;
}

/* ---- predictions --------------------------------------------------------------------------- */

static void say_prediction(const struct loader_view *view, struct finding *f, double step_ms,
                           enum change change, const char *change_fmt, va_list args)
{
    char setting[256];
    double device_ms = device_work_ms(view->facts, view->rank);
    if (step_ms < device_ms) /* the device still needs its time */
        step_ms = device_ms;
    vsnprintf(setting, sizeof setting, change_fmt, args);
    f->predicted_gain = gain_of(view->wall_ms, step_ms);
    f->at_most = change == CHANGE_OF_CODE;
    if (!isnan(f->predicted_gain))
        finding_predict(f, setting, step_ms);
}

static int cores_are_taken(const struct loader_view *view)
{
    return view->foreign_cores >= FOREIGN_MOST * view->cores;
}

/* Predicts nothing, and adds the reason to the action: other programs, or else the range of
 * gains. */
static void withhold(const struct loader_view *view, struct finding *f,
                     const struct gain_range *gains)
{
    if (cores_are_taken(view))
        finding_add_advice(f, "No prediction: other programs keep %.1f of %.0f cores busy.",
                           view->foreign_cores, view->cores);
    else if (gains && isfinite(gains->high))
        finding_add_advice(
            f, "No prediction: what this run shows allows a gain from %+.0f to %+.0f %%.",
            100 * (gains->low - 1), 100 * (gains->high - 1));
    finding_prove(f, EVIDENCE_FOREIGN_CORES, view->foreign_cores, "sys_samples");
}

void predict(const struct loader_view *view, struct finding *f, double step_ms, enum change change,
             const char *change_fmt, ...)
{
    va_list args;
    if (!f)
        return;
    /* The gain of a change of code is an upper bound, so other programs do not matter. */
    if (change == CHANGE_OF_SETTING && cores_are_taken(view)) {
        withhold(view, f, NULL);
        return;
    }
    va_start(args, change_fmt);
    say_prediction(view, f, step_ms, change, change_fmt, args);
    va_end(args);
}

void predict_setting(const struct loader_view *view, struct finding *f, const struct what_if *then,
                     const char *setting_fmt, ...)
{
    if (!f)
        return;
    struct gain_range gains = loader_model_gains(view, then);
    if (cores_are_taken(view) || !(gains.high <= RANGE_MOST * gains.low)) {
        withhold(view, f, &gains);
        return;
    }
    va_list args;
    va_start(args, setting_fmt);
    say_prediction(view, f, view->wall_ms / sqrt(gains.low * gains.high), CHANGE_OF_SETTING,
                   setting_fmt, args);
    va_end(args);
}

void prove_busy(const struct loader_view *view, struct finding *f)
{
    finding_prove(f, EVIDENCE_WORKERS_BUSY, view->worker_busy, "workers WHERE parent_pid = %lld",
                  (long long)view->loader->pid);
    finding_prove(f, EVIDENCE_MAKE_TIME, view->make_ms, "workers WHERE parent_pid = %lld",
                  (long long)view->loader->pid);
}

void prove_part(const struct loader_view *view, struct finding *f, enum evidence_code code,
                enum leat_part part, double ms)
{
    if (!isnan(ms))
        finding_prove(f, code, ms,
                      "input_parts WHERE pid = %lld AND loader IN (%d, -1) AND part = '%s'",
                      (long long)view->loader->pid, view->loader->loader, part_names[part]);
}
