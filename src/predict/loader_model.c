/* loader_model.c: see loader_model.h. */
#include "predict/loader_model.h"

#include "facts/device_time.h"
#include "facts/phase_shares.h"

#include <math.h>

/* ---- the model ------------------------------------------------------------------------------- */

static double known(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

void loader_model_scale(struct what_if *w, double make_ms)
{
    double mean = what_if_make_ms(w);
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w->make_ms[i] = mean > 0 ? w->make_ms[i] * make_ms / mean : make_ms;
    w->make_cpu_ms = mean > 0 ? w->make_cpu_ms * make_ms / mean : make_ms;
}

/* The distribution is that of the larger part, scaled to the mean of all parts. */
static void set_spread(const struct loader_view *view, struct what_if *w, double make_ms)
{
    int maker = view->loader->num_workers == 0 ? FACTS_PROCESS : FACTS_WORKERS;
    enum leat_part part =
        view->collate.mean > view->fetch.mean ? LEAT_PART_COLLATE : LEAT_PART_FETCH;
    double other = (part == LEAT_PART_COLLATE ? view->fetch.mean : known(view->collate.mean, 0)) +
                   known(view->pickle.mean, 0);
    if (facts_part_quantiles(view->facts, view->loader->pid, view->loader->loader, maker, part,
                             WHAT_IF_QUANTILES, w->make_ms)) {
        for (int i = 0; i < WHAT_IF_QUANTILES; i++)
            w->make_ms[i] += other;
        loader_model_scale(w, make_ms);
        return;
    }
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w->make_ms[i] = make_ms;
}

/* The share of CPU time in making a batch. A worker does nothing else, so its CPU use gives it.
 * In the training process the line profiler gives it; without lines, it is what the process used
 * beyond the rest of the step, assumed to keep one core busy (too much where the rest uses
 * several cores: the prediction is then too low). Unknown counts as 1. */
static double making_cpu_ratio(const struct loader_view *view)
{
    double ratio = NAN;
    if (view->loader->num_workers != 0 && !isnan(view->worker_cpu) && view->worker_busy > 0)
        ratio = view->worker_cpu / view->worker_busy;
    else if (!isnan(view->read_share))
        ratio = 1 - view->read_share - view->blocked_share;
    else if (view->loader->num_workers == 0 && !isnan(view->main_cpu))
        ratio = (view->main_cpu * view->wall_ms - view->rest_ms) / view->input_ms;
    /* Lines count a thread that waits for a core as working; the CPU time of the process does
     * not. */
    double most = view->main_cpu * view->wall_ms / view->input_ms;
    if (view->loader->num_workers == 0 && ratio > most)
        ratio = most;
    ratio = known(ratio, 1);
    return ratio < 0 ? 0 : ratio > 1 ? 1 : ratio;
}

/* `ms` less the time in which the thread was ready without a core: what it would take with its
 * own core. Waiting for a core is seen for main threads only, and by samples, so the result is
 * never below the CPU time. */
static double without_queue(double ms, double queued_ms, double cpu_ms)
{
    double left = ms - known(queued_ms, 0), least = cpu_ms < ms ? cpu_ms : ms;
    return left > least ? left : least;
}

/* The hand-over. Time beyond the usual cost is Python of the worker, which computes the next
 * batch. */
static void set_hand_over(const struct loader_view *view, struct what_if *w)
{
    const struct loader_fact *l = view->loader;
    double unpack = known(view->unpickle.mean, HAND_OVER_MS);
    double usual = unpack < HAND_OVER_MS ? unpack : HAND_OVER_MS;
    if (l->pin_memory == 1 && l->num_workers != 0 && !isnan(view->pin.mean)) {
        w->pin_ms = known(view->unpickle.mean, 0) + view->pin.mean;
        w->hand_over_ms = QUEUE_MS;
        return;
    }
    w->hand_over_ms = usual + QUEUE_MS;
    w->busy_extra_ms = (unpack - usual) / (view->worker_busy > 0.1 ? view->worker_busy : 1);
}

/* All times are as if each task had its own core: time spent waiting for a core is taken out
 * here, and the simulation adds it again for the settings that it tries. */
struct what_if loader_model(const struct loader_view *view)
{
    const struct loader_fact *l = view->loader;
    int alone = l->num_workers == 0;
    double per_step = view->batches_per_step, packing = alone ? 0 : known(view->pickle.mean, 0);
    double make_ms = known(view->make_ms, view->wall_ms / per_step) + packing;
    struct what_if w = {.batches_per_step = per_step,
                        .workers = (int)l->num_workers,
                        .prefetch = l->prefetch_factor > 0 ? (int)l->prefetch_factor : 2,
                        .cores = view->cores,
                        .foreign = view->foreign_threads};
    set_hand_over(view, &w);
    double make_cpu_ms = making_cpu_ratio(view) * make_ms;
    double beside = per_step * (alone ? make_cpu_ms : w.hand_over_ms);
    double used = view->main_cpu * view->wall_ms - beside;
    w.rest_cpu_ms = isnan(used) ? view->rest_ms : used > 0 ? used : 0;
    /* The training process waits for cores in all that it computes, including batches that it
     * makes itself. */
    double queued = view->main_delay * view->wall_ms;
    double of_rest = alone ? w.rest_cpu_ms / (w.rest_cpu_ms + beside) : 1;
    double make_queued =
        alone ? queued * (1 - of_rest) / per_step
              : view->worker_delay / (view->worker_busy > 0 ? view->worker_busy : 1) * make_ms;
    w.rest_ms = without_queue(view->rest_ms, queued * of_rest, w.rest_cpu_ms);
    set_spread(view, &w, make_ms);
    loader_model_scale(&w, without_queue(make_ms, make_queued, make_cpu_ms));
    w.make_cpu_ms = make_cpu_ms;
    if (l->iterations > 1 && l->batches > 0)
        w.epoch_batches = (int)(l->batches / l->iterations);
    return w;
}

int loader_model_workers(const struct loader_view *view, const struct what_if *w, int most)
{
    return what_if_workers(w, most, device_work_ms(view->facts, view->rank));
}

/* ---- the range of a gain --------------------------------------------------------------------- */

static void widen(struct gain_range *r, double value)
{
    r->low = isnan(value) || value < r->low ? value : r->low; /* NaN stays */
    r->high = isnan(value) || value > r->high ? value : r->high;
}

/* Removes from the computing times what the hypervisor gave to other machines. */
static void give_back(struct what_if *w, double stolen)
{
    double make_ms = what_if_make_ms(w), make_cpu_ms = w->make_cpu_ms;
    double rest_ms = w->rest_cpu_ms < w->rest_ms ? w->rest_cpu_ms : w->rest_ms;
    loader_model_scale(w, make_ms - stolen * make_cpu_ms);
    w->make_cpu_ms = (1 - stolen) * make_cpu_ms;
    w->rest_ms -= stolen * rest_ms;
    w->rest_cpu_ms *= 1 - stolen;
}

static int may_crowd(const struct loader_view *view, const struct what_if *w)
{
    return w->workers > 0 && w->workers + 1 > view->cores;
}

/* Assumptions about what was not measured; each may be true or false. */
struct assumptions {
    int others_keep_cores;    /* other programs keep the cores they have (a session or container of
                                 their own) instead of sharing all cores thread by thread */
    int workers_answer_late;  /* new workers answer late, when their Python releases its lock;
                                 without workers the delay was not measured */
    int stealing_ends;        /* the hypervisor no longer gives CPU time to other machines */
    int training_shares_core; /* with more processes than cores, the worker that the training wakes
                                 stays on its core (docs/what-if.md: the same training gained 14 %
                                 once and 63 % another time) */
};

/* Widens the range by the gain under these assumptions. The gain is computed against the
 * simulated and against the measured present step: an error of the simulation may or may not
 * apply to the new settings as well. */
static void add_gain(const struct loader_view *view, const struct what_if *then,
                     struct assumptions assumed, struct gain_range *gains)
{
    struct what_if now = loader_model(view), new = *then;
    double left = view->cores - view->foreign_cores;
    if (assumed.others_keep_cores) {
        now.foreign = new.foreign = 0;
        now.cores = new.cores = left > 1 ? left : 1;
    }
    if (assumed.workers_answer_late)
        new.busy_extra_ms = then->make_cpu_ms / what_if_make_ms(then) * LATE_MS;
    if (assumed.stealing_ends)
        give_back(&new, view->stolen);
    now.crowds = assumed.training_shares_core && may_crowd(view, &now);
    new.crowds = assumed.training_shares_core &&may_crowd(view, &new);
    double step_ms = what_if_step_ms(&new);
    widen(gains, what_if_step_ms(&now) / step_ms);
    widen(gains, view->wall_ms / step_ms);
}

struct gain_range loader_model_gains(const struct loader_view *view, const struct what_if *then)
{
    struct what_if now = loader_model(view);
    struct assumptions in_doubt = {
        .others_keep_cores = view->foreign_cores > 0,
        .workers_answer_late = view->loader->num_workers == 0,
        .stealing_ends = view->stolen > 0,
        .training_shares_core = may_crowd(view, &now) || may_crowd(view, then),
    };
    struct gain_range gains = {INFINITY, 0};
    for (int keep = 0; keep <= in_doubt.others_keep_cores; keep++)
        for (int late = 0; late <= in_doubt.workers_answer_late; late++)
            for (int ends = 0; ends <= in_doubt.stealing_ends; ends++)
                for (int shares = 0; shares <= in_doubt.training_shares_core; shares++)
                    add_gain(view, then, (struct assumptions){keep, late, ends, shares}, &gains);
    return gains;
}
