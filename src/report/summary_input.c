/* summary_input.c: the summary's input part: the loaders, their workers, and the time to make a
 * batch and hand it over. The loader that feeds the typical rank comes first; the figures of
 * samples, batches, hand-over, ready batches and lines are its own. Workers are listed by number:
 * the processes of all epochs are summed. */
#include "report/summary_parts.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { MOST_WORKERS = 1024, MOST_LINES = 24 };
static const double least_line_share = 0.01; /* less is sampling noise */

/* leat.DataLoader's threads, where they make the batches of this loader. */
static json_t *engine_part(const struct engine_fact *e)
{
    if (!e)
        return json_null();
    double made = e->order_ms + e->read_ms + e->layout_ms;
    double busy_ms = fmax(0, made - e->help_ms), all_ms = busy_ms + e->idle_ms;
    return json_pack(
        "{so so so so so so so so so so so so so so}", "source", summary_text(e->source), "order",
        summary_text(engine_order_names[e->order]), "threads", summary_integer(e->threads), "cores",
        summary_integer(e->cores), "ahead", summary_integer(e->ahead), "memory_bytes",
        json_number_or_null(e->memory_bytes), "bytes", json_number_or_null(e->bytes), "wait",
        json_number_or_null(e->wait_ms), "help", json_number_or_null(e->help_ms), "order_time",
        json_number_or_null(e->order_ms), "read_time", json_number_or_null(e->read_ms),
        "layout_time", json_number_or_null(e->layout_ms), "idle_time",
        json_number_or_null(e->idle_ms), "busy_share",
        json_number_or_null(all_ms > 0 ? busy_ms / all_ms : NAN));
}

static json_t *loader_part(const struct facts *facts, const struct loader_fact *l)
{
    double each = l->iterations > 0 ? l->first_wait_ms / (double)l->iterations : NAN;
    return json_pack(
        "{so so so so so so so so so so so so so so so so so so so so}", "engine",
        engine_part(facts_engine(facts, l->pid, l->loader)), "rank", summary_integer(l->rank),
        "pid", summary_integer(l->pid), "loader", summary_integer(l->loader), "use",
        summary_text(loader_use_names[l->use]), "dataset", summary_text(l->dataset),
        "dataset_length", summary_integer(l->dataset_length), "where", summary_text(l->where),
        "batch_size", summary_integer(l->batch_size), "num_workers",
        summary_integer(l->num_workers), "prefetch_factor", summary_integer(l->prefetch_factor),
        "pin_memory", summary_flag(l->pin_memory), "persistent_workers",
        summary_flag(l->persistent_workers), "iterable", summary_flag(l->iterable), "iterations",
        summary_integer(l->iterations), "batches", summary_integer(l->batches), "wait",
        json_number_or_null(l->wait_ms), "first_wait", json_number_or_null(l->first_wait_ms),
        "first_batch", json_number_or_null(each), "background",
        json_number_or_null(l->background_ms));
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The loader and worker whose parts are asked for. */
struct owner {
    const struct facts *facts;
    int64_t pid;
    int loader, worker;
};

static struct part_stats stats_of(const struct owner *o, enum leat_part part)
{
    struct part_stats s;
    facts_part(o->facts, o->pid, o->loader, o->worker, part, &s);
    return s;
}

static json_t *times_part(const struct part_stats *s)
{
    if (!(s->n > 0))
        return json_null();
    return json_pack("{so so so so so so}", "n", json_integer((json_int_t)s->n), "mean",
                     json_number_or_null(s->mean), "median", json_number_or_null(s->median), "p90",
                     json_number_or_null(s->p90), "p99", json_number_or_null(s->p99), "max",
                     json_number_or_null(s->max));
}

static json_t *part_of(const struct owner *o, enum leat_part part)
{
    struct part_stats s = stats_of(o, part);
    return times_part(&s);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* The processes of all epochs that had one worker number. */
struct worker_sum {
    struct worker_fact sum;
    int64_t processes;
};

static int same_worker(const struct worker_fact *a, const struct worker_fact *b)
{
    return a->parent_pid == b->parent_pid && a->loader == b->loader &&
           a->worker_id == b->worker_id && a->worker_id >= 0;
}

static int64_t sum_known(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? -1 : a + b;
}

/* The pid is the latest process's. */
static size_t sum_workers(const struct facts *facts, struct worker_sum *sums)
{
    size_t n = 0;
    for (size_t i = 0; i < facts->worker_count; i++) {
        const struct worker_fact *w = &facts->workers[i];
        size_t at = 0;
        while (at < n && !same_worker(&sums[at].sum, w))
            at++;
        if (at == n && n == MOST_WORKERS)
            continue;
        struct worker_sum *worker = &sums[at];
        if (at == n) {
            sums[n++] = (struct worker_sum){*w, 1};
            continue;
        }
        worker->processes++;
        worker->sum.pid = w->pid;
        worker->sum.batches = sum_known(worker->sum.batches, w->batches);
        worker->sum.samples = sum_known(worker->sum.samples, w->samples);
        worker->sum.busy_ms += w->busy_ms;
        worker->sum.alive_ms += w->alive_ms;
        worker->sum.max_ms = fmax(worker->sum.max_ms, w->max_ms);
    }
    return n;
}

static json_t *worker_part(const struct facts *facts, const struct worker_sum *worker)
{
    const struct worker_fact *w = &worker->sum;
    struct owner o = {facts, w->parent_pid, w->loader, w->worker_id};
    double busy = w->alive_ms > 0 ? w->busy_ms / w->alive_ms : NAN;
    struct part_stats idle = stats_of(&o, LEAT_PART_IDLE);
    double idle_share = idle.n > 0 && w->alive_ms > 0 ? fmin(1, idle.total / w->alive_ms) : NAN;
    return json_pack(
        "{so so so so so sI so so so so so so so so so so}", "rank", summary_integer(w->rank),
        "pid", summary_integer(w->pid), "parent_pid", summary_integer(w->parent_pid), "loader",
        summary_integer(w->loader), "worker", summary_integer(w->worker_id), "processes",
        (json_int_t)worker->processes, "batches", summary_integer(w->batches), "samples",
        summary_integer(w->samples), "busy", json_number_or_null(w->busy_ms), "alive",
        json_number_or_null(w->alive_ms), "busy_share", json_number_or_null(busy > 1 ? 1 : busy),
        "idle_share", json_number_or_null(idle_share), "max", json_number_or_null(w->max_ms),
        "sample", part_of(&o, LEAT_PART_SAMPLE), "collate", part_of(&o, LEAT_PART_COLLATE),
        "pickle", part_of(&o, LEAT_PART_PICKLE));
}

static json_t *workers_part(const struct facts *facts)
{
    struct worker_sum *sums = mem_alloc_array(MOST_WORKERS + 1, sizeof *sums);
    json_t *list = sums ? json_array() : NULL;
    size_t n = list ? sum_workers(facts, sums) : 0;
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(list, worker_part(facts, &sums[i])) < 0) {
            json_decref(list);
            list = NULL;
            break;
        }
    mem_free(sums);
    return list;
}

/* ---- the feeding loader ---------------------------------------------------------------------- */

/* Busy time per batch or per sample of the loader's workers, for runs without finer records. */
static struct part_stats busy_stats(const struct owner *o, int per_sample)
{
    struct part_stats s = {0, 0, NAN, NAN, NAN, NAN, NAN, 0};
    for (size_t i = 0; i < o->facts->worker_count; i++) {
        const struct worker_fact *w = &o->facts->workers[i];
        int64_t made = per_sample ? w->samples : w->batches;
        if (w->parent_pid != o->pid || w->loader != o->loader || made <= 0 || !isfinite(w->busy_ms))
            continue;
        s.total += w->busy_ms;
        s.n += (double)made;
        if (!per_sample)
            s.max = isnan(s.max) ? w->max_ms : fmax(s.max, w->max_ms);
    }
    s.mean = s.n > 0 ? s.total / s.n : NAN;
    return s;
}

/* Shares of the time spent on samples, by kind. */
static json_t *sample_kinds(const struct line_fact *lines, size_t n)
{
    double all = 0, read = 0, decode = 0;
    for (size_t i = 0; i < n; i++) {
        if (lines[i].below || lines[i].line->part != LEAT_PART_SAMPLE)
            continue;
        all += lines[i].ms;
        read += lines[i].read_ms;
        decode += lines[i].decode_ms;
    }
    if (!(all > 0))
        return json_pack("{sn sn sn}", "read", "decode", "other");
    return json_pack("{so so so}", "read", json_number_or_null(read / all), "decode",
                     json_number_or_null(decode / all), "other",
                     json_number_or_null(fmax(0, 1 - (read + decode) / all)));
}

static json_t *per_sample_part(const struct owner *o, const struct line_fact *lines, size_t n)
{
    struct part_stats s = stats_of(o, LEAT_PART_SAMPLE);
    if (!(s.n > 0))
        s = busy_stats(o, 1);
    json_t *part = times_part(&s);
    if (!json_is_object(part))
        return part;
    json_t *kinds = sample_kinds(lines, n);
    if (!kinds || json_object_update(part, kinds) < 0) {
        json_decref(part);
        part = NULL;
    }
    json_decref(kinds);
    return part;
}

static json_t *per_batch_part(const struct owner *o)
{
    struct part_stats fetch = stats_of(o, LEAT_PART_FETCH);
    struct part_stats collate = stats_of(o, LEAT_PART_COLLATE);
    struct part_stats made = busy_stats(o, 0);
    if (fetch.n > 0) {
        made.mean = fetch.mean + (collate.n > 0 ? collate.mean : 0);
        made.n = fetch.n;
    }
    if (!(made.n > 0))
        return json_null();
    return json_pack("{so so so so}", "mean", json_number_or_null(made.mean), "max",
                     json_number_or_null(made.max), "fetch", times_part(&fetch), "collate",
                     times_part(&collate));
}

static json_t *hand_over_part(const struct owner *o)
{
    struct part_stats pickle = stats_of(o, LEAT_PART_PICKLE);
    struct part_stats unpickle = stats_of(o, LEAT_PART_UNPICKLE);
    struct part_stats pin = stats_of(o, LEAT_PART_PIN);
    if (!(pickle.n + unpickle.n + pin.n > 0))
        return json_null();
    const struct part_stats *pipe = unpickle.n > 0 ? &unpickle : &pickle;
    return json_pack("{so so so so}", "pickle", times_part(&pickle), "unpickle",
                     times_part(&unpickle), "pin", times_part(&pin), "bytes",
                     json_number_or_null(pipe->n > 0 ? pipe->bytes / pipe->n : NAN));
}

static json_t *ready_part(const struct owner *o)
{
    struct ready_stats s;
    facts_ready(o->facts, o->pid, o->loader, o->worker, &s);
    if (!(s.requests > 0))
        return json_null();
    return json_pack("{so so so so}", "requests", json_integer((json_int_t)s.requests), "mean",
                     json_number_or_null(s.mean), "median", json_number_or_null(s.median),
                     "none_share", json_number_or_null(s.none_share));
}

static json_t *lines_part(const struct line_fact *lines, size_t n)
{
    json_t *list = json_array();
    double all = 0;
    for (size_t i = 0; i < n; i++)
        all += lines[i].below ? 0 : lines[i].ms;
    for (size_t i = 0; list && i < n && json_array_size(list) < MOST_LINES; i++) {
        const struct line_fact *l = &lines[i];
        if (!(l->ms >= least_line_share * all))
            break; /* they are sorted by cost */
        json_t *below = l->below ? json_pack("{so so}", "file", summary_text(l->below->file),
                                             "line", summary_integer(l->below->line))
                                 : json_null();
        json_t *item = json_pack(
            "{so so so ss so so so so so}", "file", summary_text(l->line->file), "line",
            summary_integer(l->line->line), "function", summary_text(l->line->function), "part",
            l->line->part == LEAT_PART_COLLATE ? "collate" : "sample", "share",
            json_number_or_null(l->ms / all), "read", json_number_or_null(l->read_ms / l->ms),
            "decode", json_number_or_null(l->decode_ms / l->ms), "blocked",
            json_number_or_null(l->blocked_ms / l->ms), "below", below);
        if (json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *summary_input(const struct facts *facts)
{
    int rank = facts->typical >= 0 && (size_t)facts->typical < facts->rank_count
                   ? facts->ranks[facts->typical].rank
                   : 0;
    const struct loader_fact *feeding = feeding_loader(facts, rank);
    struct owner all = {facts, feeding ? feeding->pid : -1, feeding ? feeding->loader : -1,
                        FACTS_ALL};
    struct line_fact *lines = NULL;
    size_t n = 0;
    json_t *loaders = json_array();
    int bad = !loaders || facts_lines(facts, all.pid, all.loader, &lines, &n) < 0;
    if (!bad && feeding)
        bad = json_array_append_new(loaders, loader_part(facts, feeding)) < 0;
    for (size_t i = 0; !bad && i < facts->loader_count; i++)
        if (&facts->loaders[i] != feeding)
            bad = json_array_append_new(loaders, loader_part(facts, &facts->loaders[i])) < 0;
    json_t *part = NULL;
    if (bad)
        json_decref(loaders);
    else
        part = json_pack("{so so so so so so so}", "loaders", loaders, "workers",
                         workers_part(facts), "per_sample", per_sample_part(&all, lines, n),
                         "per_batch", per_batch_part(&all), "hand_over", hand_over_part(&all),
                         "ready", ready_part(&all), "lines", lines_part(lines, n));
    mem_free(lines);
    return part;
}
