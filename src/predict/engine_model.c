/* engine_model.c: see engine_model.h. */
#include "predict/engine_model.h"

#include <math.h>

struct engine_view engine_look(const struct loader_view *view, const struct engine_fact *e)
{
    struct engine_view v = {.view = view, .e = e, .idle = view->idle_cores};
    const struct {
        const char *name;
        double ms;
    } stages[] = {
        {"reading",             e->read_ms  },
        {"padding and joining", e->layout_ms},
        {"choosing samples",    e->order_ms }
    };
    double most = -1;
    v.work_ms = e->order_ms + e->read_ms + e->layout_ms;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (stages[i].ms > most) {
            most = stages[i].ms;
            v.stage = stages[i].name;
        }
    v.stage_share = v.work_ms > 0 ? most / v.work_ms : NAN;
    double busy_ms = fmax(0, v.work_ms - e->help_ms);
    v.busy = busy_ms + e->idle_ms > 0 ? busy_ms / (busy_ms + e->idle_ms) : NAN;
    v.cpu = view->main_cpu / ((double)e->threads * v.busy + 1);
    return v;
}

static double step_with(const struct engine_view *v, double work_ms, double threads)
{
    double help = v->e->help_ms > 0 ? 1 : 0, rest = v->view->rest_ms;
    return fmax(rest, (work_ms + help * rest) / (threads + help));
}

double engine_step_work(const struct engine_view *v)
{
    return v->e->batches > 0 ? v->work_ms / v->e->batches * v->view->batches_per_step : NAN;
}

double engine_step_ms(const struct engine_view *v, double work_ms, double threads)
{
    const struct loader_view *view = v->view;
    double now = step_with(v, engine_step_work(v), (double)v->e->threads);
    double step = view->wall_ms * step_with(v, work_ms, threads) / now;
    double saved = engine_step_work(v) - work_ms; /* assumed to be CPU time */
    double cpu = (view->main_cpu * view->wall_ms - fmax(0, saved)) / view->cores_left;
    return isnan(cpu) ? step : fmax(step, cpu);
}

int engine_threads_for(const struct engine_view *v, int most)
{
    double best = engine_step_ms(v, engine_step_work(v), most);
    int threads = (int)v->e->threads + 1;
    while (threads < most && engine_step_ms(v, engine_step_work(v), threads) > NEAR * best)
        threads++;
    return threads;
}
