/* cause_scene.c: everything that the causes of a slow input look at, gathered once. */
#include "diagnose/cause.h"

#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- workers --------------------------------------------------------------------------------- */

static int is_ours(const struct scene *s, const struct worker_fact *w)
{
    return w->parent_pid == s->loader->pid && (w->loader < 0 || w->loader == s->loader->loader) &&
           w->alive_ms > 0 && w->batches > 0;
}

struct mean {
    double sum;
    size_t n;
};

static void mean_add(struct mean *m, double value)
{
    if (isnan(value))
        return;
    m->sum += value;
    m->n++;
}

static double mean_of(const struct mean *m)
{
    return m->n ? m->sum / (double)m->n : NAN;
}

static void look_at_workers(struct scene *s)
{
    struct mean cpu = {0}, delay = {0};
    double busy_ms = 0, alive_ms = 0, batches = 0;
    int untold = 0;
    for (size_t i = 0; i < s->facts->worker_count; i++) {
        const struct worker_fact *w = &s->facts->workers[i];
        if (!is_ours(s, w))
            continue;
        s->workers++;
        untold |= w->loader < 0;
        busy_ms += w->busy_ms;
        alive_ms += w->alive_ms;
        batches += (double)w->batches;
        mean_add(&cpu, process_cpu(s->facts, w->pid, s->from_ms, s->to_ms));
        mean_add(&delay, process_delay(s->facts, w->pid, s->from_ms, s->to_ms));
    }
    for (size_t i = 0; i < s->facts->loader_count; i++) {
        const struct loader_fact *l = &s->facts->loaders[i];
        s->mixed |= untold && l != s->loader && l->pid == s->loader->pid && l->num_workers > 0;
    }
    s->busy = alive_ms > 0 ? busy_ms / alive_ms : NAN;
    s->busy = s->busy > 1 ? 1 : s->busy;
    s->make_ms = batches > 0 ? busy_ms / batches : NAN;
    s->worker_cpu = mean_of(&cpu);
    s->worker_delay = mean_of(&delay);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int look_at_lines(struct scene *s)
{
    double read = 0, decode = 0, blocked = 0, of_samples = 0;
    if (facts_lines(s->facts, s->loader->pid, s->loader->loader, &s->lines, &s->line_count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < s->line_count; i++) {
        const struct line_fact *l = &s->lines[i];
        if (l->below)
            continue; /* it is inside the line that called it */
        s->line_ms += l->ms;
        read += l->read_ms;
        decode += l->decode_ms;
        blocked += l->blocked_ms;
        if (l->line->part != LEAT_PART_SAMPLE)
            continue;
        of_samples += l->ms;
        s->sample_read += l->read_ms;
        s->sample_decode += l->decode_ms;
    }
    s->sample_read /= of_samples;
    s->sample_decode /= of_samples;
    s->read_share = read / s->line_ms;
    s->decode_share = decode / s->line_ms;
    s->blocked_share = blocked / s->line_ms;
    return 0;
}

const struct line_fact *scene_top_line(const struct scene *s, enum leat_part part)
{
    const struct line_fact *library = NULL;
    for (size_t i = 0; i < s->line_count; i++) { /* the costliest come first */
        const struct line_fact *l = &s->lines[i];
        if (l->below || l->line->part != part)
            continue;
        if (!l->line->library)
            return l;
        library = library ? library : l;
    }
    return library;
}

double line_share(const struct scene *s, const struct line_fact *line)
{
    return line && s->line_ms > 0 ? line->ms / s->line_ms : NAN;
}

#define MAKING "making a batch" /* what the shares of lines are of */

void place_line(const struct scene *s, const struct line_fact *line, struct finding *f)
{
    char place[sizeof((struct input_line *)0)->file + 16];
    if (!line)
        return;
    snprintf(place, sizeof place, "%s:%d", line->line->file, line->line->line);
    finding_place(f, place, line_share(s, line), MAKING);
    for (size_t i = 0; i < s->line_count; i++) {
        const struct line_fact *l = &s->lines[i];
        if (!l->below || l->below->line != line->line->line || l->line->part != line->line->part ||
            strcmp(l->below->file, line->line->file) != 0)
            continue;
        snprintf(place, sizeof place, "%s:%d", l->line->file, l->line->line);
        finding_place(f, place, line_share(s, l), MAKING);
        return;
    }
}

void place_loader(const struct scene *s, struct finding *f)
{
    const struct line_fact *sample = scene_top_line(s, LEAT_PART_SAMPLE);
    const struct line_fact *collate = scene_top_line(s, LEAT_PART_COLLATE);
    place_line(s, collate && (!sample || collate->ms > sample->ms) ? collate : sample, f);
    finding_place(f, s->loader->where, s->input_ms / s->wall_ms, "the step");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void look_at_parts(struct scene *s)
{
    const struct loader_fact *l = s->loader;
    int maker = l->num_workers == 0 ? FACTS_PROCESS : FACTS_WORKERS;
    const struct {
        struct part_stats *place;
        enum leat_part part;
        int where;
    } parts[] = {
        {&s->sample,   LEAT_PART_SAMPLE,   maker        },
        {&s->fetch,    LEAT_PART_FETCH,    maker        },
        {&s->collate,  LEAT_PART_COLLATE,  maker        },
        {&s->pickle,   LEAT_PART_PICKLE,   FACTS_WORKERS},
        {&s->unpickle, LEAT_PART_UNPICKLE, FACTS_PROCESS},
        {&s->pin,      LEAT_PART_PIN,      FACTS_PROCESS}
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        facts_part(s->facts, l->pid, l->loader, parts[i].where, parts[i].part, parts[i].place);
    if (l->num_workers == 0)
        s->make_ms = s->input_ms / s->batches_per_step;
    else if (!isnan(s->fetch.mean))
        s->make_ms = s->fetch.mean + (isnan(s->collate.mean) ? 0 : s->collate.mean);
}

/* What others took: programs beside the run, and the machines beside this virtual one. 0 where it
 * was not sampled. */
static void look_at_others(struct scene *s)
{
    struct mean taken = {0}, stolen = {0}, busy = {0};
    for (size_t i = 0; i < s->facts->sys_sample_count; i++) {
        const struct sys_sample *sample = &s->facts->sys_samples[i];
        if (sample->t_ms < s->from_ms || sample->t_ms > s->to_ms)
            continue;
        mean_add(&taken, sample->cpu_ratio - sample->run_cpu_ratio);
        mean_add(&stolen, sample->steal_ratio);
        mean_add(&busy, sample->cpu_ratio);
    }
    double cores = mean_of(&taken) * s->cores, theft = mean_of(&stolen) / mean_of(&busy);
    s->foreign_cores = cores > 0 ? cores : 0;
    s->stolen = theft > 0 ? (theft < 1 ? theft : 1) : 0;
}

/* Threads of other programs, running or ready to. Their CPU time says how many ran; as they share
 * the cores with the run, as large a part of theirs was kept waiting as of the run's own. But no
 * more than would explain how long the run itself was kept waiting: others may be served last. */
static double foreign_threads(const struct scene *s)
{
    int workers = s->loader->num_workers > 0 && !isnan(s->worker_cpu);
    double ran = s->main_cpu + (workers ? (double)s->workers * s->worker_cpu : 0);
    double queued = s->main_delay + (workers ? (double)s->workers * s->worker_delay : 0);
    double served = ran / (ran + queued), own = ran + queued;
    if (isnan(served) || served <= 0)
        return s->foreign_cores;
    double most = s->cores / served - (own > 1 ? own : 1), threads = s->foreign_cores / served;
    return threads < most ? threads : most > 0 ? most : 0;
}

int scene_look(struct scene *s)
{
    const struct rank_facts *r = s->rank;
    s->wall_ms = r->kept_ms / (double)r->kept;
    s->rest_ms = s->wall_ms - phase_mean(r, PHASE_INPUT);
    double batches = (double)r->micro_steps / (double)r->kept;
    s->batches_per_step = batches > 1 ? batches : 1;
    kept_interval(r, &s->from_ms, &s->to_ms);
    s->cores = s->facts->cpus > 0 ? (double)s->facts->cpus : 1;
    s->left = cores_left(s->facts, s->from_ms, s->to_ms);
    look_at_others(s);
    s->idle = (1 - machine_cpu(s->facts, s->from_ms, s->to_ms)) * s->cores;
    s->main_cpu = process_cpu(s->facts, r->pid, s->from_ms, s->to_ms);
    s->main_delay = process_delay(s->facts, r->pid, s->from_ms, s->to_ms);
    look_at_workers(s);
    s->foreign = foreign_threads(s);
    look_at_parts(s);
    return look_at_lines(s);
}

void scene_done(struct scene *s)
{
    mem_free(s->lines);
    s->lines = NULL;
    s->line_count = 0;
}

/* ---- the model ------------------------------------------------------------------------------- */

static double known(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

void model_scale(struct what_if *w, double make_ms)
{
    double mean = what_if_make_ms(w);
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w->make_ms[i] = mean > 0 ? w->make_ms[i] * make_ms / mean : make_ms;
    w->make_cpu_ms = mean > 0 ? w->make_cpu_ms * make_ms / mean : make_ms;
}

/* The spread is that of the larger part, around the mean of the whole. */
static void model_spread(const struct scene *s, struct what_if *w, double make_ms)
{
    int maker = s->loader->num_workers == 0 ? FACTS_PROCESS : FACTS_WORKERS;
    enum leat_part part = s->collate.mean > s->fetch.mean ? LEAT_PART_COLLATE : LEAT_PART_FETCH;
    double other = (part == LEAT_PART_COLLATE ? s->fetch.mean : known(s->collate.mean, 0)) +
                   known(s->pickle.mean, 0);
    if (facts_part_quantiles(s->facts, s->loader->pid, s->loader->loader, maker, part,
                             WHAT_IF_QUANTILES, w->make_ms)) {
        for (int i = 0; i < WHAT_IF_QUANTILES; i++)
            w->make_ms[i] += other;
        model_scale(w, make_ms);
        return;
    }
    for (int i = 0; i < WHAT_IF_QUANTILES; i++)
        w->make_ms[i] = make_ms;
}

/* How much of making a batch is CPU time. A worker does nothing else, so its CPU use says; in the
 * training process the lines do, or else what it used beyond the rest of the step, taken to keep
 * one core busy (too much where compute uses several: the prediction is then too modest). Unknown
 * counts as all. */
static double making_cpu_ratio(const struct scene *s)
{
    double ratio = NAN;
    if (s->loader->num_workers != 0 && !isnan(s->worker_cpu) && s->busy > 0)
        ratio = s->worker_cpu / s->busy;
    else if (!isnan(s->read_share))
        ratio = 1 - s->read_share - s->blocked_share;
    else if (s->loader->num_workers == 0 && !isnan(s->main_cpu))
        ratio = (s->main_cpu * s->wall_ms - s->rest_ms) / s->input_ms;
    /* Lines count a thread that waits for a core as at work; the process's CPU time does not. */
    double most = s->main_cpu * s->wall_ms / s->input_ms;
    if (s->loader->num_workers == 0 && ratio > most)
        ratio = most;
    ratio = known(ratio, 1);
    return ratio < 0 ? 0 : ratio > 1 ? 1 : ratio;
}

/* What a span of `ms` takes on a core of its own: less `queued_ms`, in which it was ready without
 * one. As only main threads are seen queueing, and by samples, never below the CPU time. */
static double without_queue(double ms, double queued_ms, double cpu_ms)
{
    double left = ms - known(queued_ms, 0), least = cpu_ms < ms ? cpu_ms : ms;
    return left > least ? left : least;
}

/* The hand-over. What exceeds its usual price is the worker's Python, busy with the next batch. */
static void model_hand_over(const struct scene *s, struct what_if *w)
{
    const struct loader_fact *l = s->loader;
    double unpack = known(s->unpickle.mean, HAND_OVER_MS);
    double usual = unpack < HAND_OVER_MS ? unpack : HAND_OVER_MS;
    if (l->pin_memory == 1 && l->num_workers != 0 && !isnan(s->pin.mean)) {
        w->pin_ms = known(s->unpickle.mean, 0) + s->pin.mean;
        w->hand_over_ms = QUEUE_MS;
        return;
    }
    w->hand_over_ms = usual + QUEUE_MS;
    w->busy_extra_ms = (unpack - usual) / (s->busy > 0.1 ? s->busy : 1);
}

/* All times on a core of their own: what was spent queueing for one is left out, and comes back in
 * the play, as long as it is for the settings to be tried. */
struct what_if scene_model(const struct scene *s)
{
    const struct loader_fact *l = s->loader;
    int alone = l->num_workers == 0;
    double per_step = s->batches_per_step, packing = alone ? 0 : known(s->pickle.mean, 0);
    double make_ms = known(s->make_ms, s->wall_ms / per_step) + packing;
    struct what_if w = {.batches_per_step = per_step,
                        .workers = (int)l->num_workers,
                        .prefetch = l->prefetch_factor > 0 ? (int)l->prefetch_factor : 2,
                        .cores = s->cores,
                        .foreign = s->foreign};
    model_hand_over(s, &w);
    double make_cpu_ms = making_cpu_ratio(s) * make_ms;
    double beside = per_step * (alone ? make_cpu_ms : w.hand_over_ms);
    double used = s->main_cpu * s->wall_ms - beside;
    w.rest_cpu_ms = isnan(used) ? s->rest_ms : used > 0 ? used : 0;
    /* The training process queues for all that it computes: the batches too, if it makes them. */
    double queued = s->main_delay * s->wall_ms;
    double of_rest = alone ? w.rest_cpu_ms / (w.rest_cpu_ms + beside) : 1;
    double make_queued = alone ? queued * (1 - of_rest) / per_step
                               : s->worker_delay / (s->busy > 0 ? s->busy : 1) * make_ms;
    w.rest_ms = without_queue(s->rest_ms, queued * of_rest, w.rest_cpu_ms);
    model_spread(s, &w, make_ms);
    model_scale(&w, without_queue(make_ms, make_queued, make_cpu_ms));
    w.make_cpu_ms = make_cpu_ms;
    if (l->iterations > 1 && l->batches > 0)
        w.epoch_batches = (int)(l->batches / l->iterations);
    return w;
}

int scene_workers(const struct scene *s, const struct what_if *w, int most)
{
    return what_if_workers(w, most, device_work_ms(s->facts, s->rank));
}

double pipe_bytes(const struct scene *s)
{
    const struct part_stats *pipe = s->pickle.n > 0 ? &s->pickle : &s->unpickle;
    return pipe->n > 0 ? pipe->bytes / pipe->n : NAN;
}

int workers_limit(const struct scene *s)
{
    const double late = 0.7; /* as often as not, then, the batch's worker is at work on the next */
    if (s->busy >= BUSY_SHARE)
        return 1;
    return s->busy >= late && s->unpickle.mean >= HAND_OVER_SLOW && pipe_bytes(s) < FEW_BYTES;
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void say_prediction(const struct scene *s, struct finding *f, double step_ms,
                           enum change change, const char *change_fmt, va_list args)
{
    char setting[256];
    double device_ms = device_work_ms(s->facts, s->rank);
    if (step_ms < device_ms) /* the host may be done with a step long before the device is */
        step_ms = device_ms;
    vsnprintf(setting, sizeof setting, change_fmt, args);
    f->predicted_gain = gain_of(s->wall_ms, step_ms);
    f->at_most = change == CHANGE_OF_CODE;
    if (!isnan(f->predicted_gain))
        finding_predict(f, setting, step_ms);
}

struct range {
    double low, high;
};

static int others_rule(const struct scene *s)
{
    return s->foreign_cores >= FOREIGN_MOST * s->cores;
}

/* Predicts nothing, and says why: others, or else the range. */
static void withhold(const struct scene *s, struct finding *f, const struct range *gains)
{
    if (others_rule(s))
        finding_add_advice(
            f, "The gain cannot be foretold: other programs keep %.1f of %.0f cores busy.",
            s->foreign_cores, s->cores);
    else if (gains && isfinite(gains->high))
        finding_add_advice(f,
                           "The gain cannot be foretold: by what is known of this run it is "
                           "anything between %+.0f and %+.0f %%.",
                           100 * (gains->low - 1), 100 * (gains->high - 1));
    finding_prove(f, EVIDENCE_FOREIGN_CORES, s->foreign_cores, "sys_samples");
}

void predict(const struct scene *s, struct finding *f, double step_ms, enum change change,
             const char *change_fmt, ...)
{
    va_list args;
    if (!f)
        return;
    /* A change of the code is told as an upper bound, whoever else is at work. */
    if (change == CHANGE_OF_SETTING && others_rule(s)) {
        withhold(s, f, NULL);
        return;
    }
    va_start(args, change_fmt);
    say_prediction(s, f, step_ms, change, change_fmt, args);
    va_end(args);
}

static void widen(struct range *r, double value)
{
    r->low = isnan(value) || value < r->low ? value : r->low; /* NaN stays */
    r->high = isnan(value) || value > r->high ? value : r->high;
}

/* Computing as if nobody had stolen from it. */
static void give_back(struct what_if *w, double stolen)
{
    double make_ms = what_if_make_ms(w), make_cpu_ms = w->make_cpu_ms;
    double rest_ms = w->rest_cpu_ms < w->rest_ms ? w->rest_cpu_ms : w->rest_ms;
    model_scale(w, make_ms - stolen * make_cpu_ms);
    w->make_cpu_ms = (1 - stolen) * make_cpu_ms;
    w->rest_ms -= stolen * rest_ms;
    w->rest_cpu_ms *= 1 - stolen;
}

static int may_crowd(const struct scene *s, const struct what_if *w)
{
    return w->workers > 0 && w->workers + 1 > s->cores;
}

/* What is not known is tried both ways:
 *   - others that compute share the cores thread by thread, or keep those they have, as a group of
 *     their own does (a session, a container);
 *   - without workers nobody has seen how late a worker at work answers. At once, or as late as
 *     Python that computes lets go of its lock: two tensors, five turns each, 5 ms a turn;
 *   - what the hypervisor took of the cores for other machines will be taken again, or not;
 *   - where workers and training are more than the cores, a worker finds a core by itself, or
 *     shares that of the training, which wakes it (docs/what-if.md: one training gained 14 % by
 *     two workers, and 63 % another time);
 *   - the play of the present settings gives the present step, or misses it by something that the
 *     other settings have as well. */
static struct range gains_of(const struct scene *s, const struct what_if *then)
{
    struct what_if present = scene_model(s);
    struct range gains = {INFINITY, 0};
    double left = s->cores - s->foreign_cores;
    double late = then->make_cpu_ms / what_if_make_ms(then) * LATE_MS;
    for (int way = 0; way < 16; way++) {
        struct what_if now = present, new = *then;
        if ((way & 1 && s->foreign_cores == 0) || (way & 2 && s->loader->num_workers != 0) ||
            (way & 4 && s->stolen == 0) || (way & 8 && !may_crowd(s, &now) && !may_crowd(s, &new)))
            continue; /* nothing to be in doubt about */
        if (way & 1) {
            now.foreign = new.foreign = 0;
            now.cores = new.cores = left > 1 ? left : 1;
        }
        if (way & 2)
            new.busy_extra_ms = late;
        if (way & 4)
            give_back(&new, s->stolen);
        now.crowds = way & 8 && may_crowd(s, &now);
        new.crowds = way & 8 && may_crowd(s, &new);
        double step_ms = what_if_step_ms(&new);
        widen(&gains, what_if_step_ms(&now) / step_ms);
        widen(&gains, s->wall_ms / step_ms);
    }
    return gains;
}

void predict_setting(const struct scene *s, struct finding *f, const struct what_if *then,
                     const char *setting_fmt, ...)
{
    if (!f)
        return;
    struct range gains = gains_of(s, then);
    if (others_rule(s) || !(gains.high <= RANGE_MOST * gains.low)) {
        withhold(s, f, &gains);
        return;
    }
    va_list args;
    va_start(args, setting_fmt);
    say_prediction(s, f, s->wall_ms / sqrt(gains.low * gains.high), CHANGE_OF_SETTING, setting_fmt,
                   args);
    va_end(args);
}

void prove_busy(const struct scene *s, struct finding *f)
{
    finding_prove(f, EVIDENCE_WORKERS_BUSY, s->busy, "workers WHERE parent_pid = %lld",
                  (long long)s->loader->pid);
    finding_prove(f, EVIDENCE_MAKE_TIME, s->make_ms, "workers WHERE parent_pid = %lld",
                  (long long)s->loader->pid);
}

void prove_part(const struct scene *s, struct finding *f, enum evidence_code code,
                enum leat_part part, double ms)
{
    if (!isnan(ms))
        finding_prove(f, code, ms,
                      "input_parts WHERE pid = %lld AND loader IN (%d, -1) AND part = '%s'",
                      (long long)s->loader->pid, s->loader->loader, part_names[part]);
}
