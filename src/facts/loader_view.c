/* loader_view.c: see loader_view.h. */
#include "facts/loader_view.h"

#include "base/mem.h"
#include "facts/machine_use.h"
#include "facts/phase_shares.h"

#include <math.h>

const struct loader_fact *feeding_loader(const struct facts *facts, int rank)
{
    const struct loader_fact *best = NULL;
    for (size_t i = 0; i < facts->loader_count; i++) {
        const struct loader_fact *l = &facts->loaders[i];
        if (l->rank != rank || l->use == LOADER_EVAL)
            continue;
        if (!best || l->wait_ms > best->wait_ms)
            best = l;
    }
    return best;
}

/* ---- workers --------------------------------------------------------------------------------- */

static int is_of_loader(const struct loader_view *view, const struct worker_fact *w)
{
    return w->parent_pid == view->loader->pid &&
           (w->loader < 0 || w->loader == view->loader->loader) && w->alive_ms > 0 &&
           w->batches > 0;
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

static void view_workers(struct loader_view *view)
{
    struct mean cpu = {0}, delay = {0};
    double busy_ms = 0, alive_ms = 0, batches = 0;
    int unassigned = 0;
    for (size_t i = 0; i < view->facts->worker_count; i++) {
        const struct worker_fact *w = &view->facts->workers[i];
        if (!is_of_loader(view, w))
            continue;
        view->worker_count++;
        unassigned |= w->loader < 0;
        busy_ms += w->busy_ms;
        alive_ms += w->alive_ms;
        batches += (double)w->batches;
        mean_add(&cpu, process_cpu(view->facts, w->pid, view->from_ms, view->to_ms));
        mean_add(&delay, process_delay(view->facts, w->pid, view->from_ms, view->to_ms));
    }
    for (size_t i = 0; i < view->facts->loader_count; i++) {
        const struct loader_fact *l = &view->facts->loaders[i];
        view->workers_mixed |=
            unassigned && l != view->loader && l->pid == view->loader->pid && l->num_workers > 0;
    }
    view->worker_busy = alive_ms > 0 ? busy_ms / alive_ms : NAN;
    view->worker_busy = view->worker_busy > 1 ? 1 : view->worker_busy;
    view->make_ms = batches > 0 ? busy_ms / batches : NAN;
    view->worker_cpu = mean_of(&cpu);
    view->worker_delay = mean_of(&delay);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int view_lines(struct loader_view *view)
{
    double read = 0, decode = 0, blocked = 0, of_samples = 0;
    if (facts_lines(view->facts, view->loader->pid, view->loader->loader, &view->lines,
                    &view->line_count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < view->line_count; i++) {
        const struct line_fact *l = &view->lines[i];
        if (l->below)
            continue; /* it is inside the line that called it */
        view->line_ms += l->ms;
        read += l->read_ms;
        decode += l->decode_ms;
        blocked += l->blocked_ms;
        if (l->line->part != LEAT_PART_SAMPLE)
            continue;
        of_samples += l->ms;
        view->sample_read += l->read_ms;
        view->sample_decode += l->decode_ms;
    }
    view->sample_read /= of_samples;
    view->sample_decode /= of_samples;
    view->read_share = read / view->line_ms;
    view->decode_share = decode / view->line_ms;
    view->blocked_share = blocked / view->line_ms;
    return 0;
}

const struct line_fact *loader_view_top_line(const struct loader_view *view, enum leat_part part)
{
    const struct line_fact *library = NULL;
    for (size_t i = 0; i < view->line_count; i++) { /* the costliest come first */
        const struct line_fact *l = &view->lines[i];
        if (l->below || l->line->part != part)
            continue;
        if (!l->line->library)
            return l;
        library = library ? library : l;
    }
    return library;
}

double loader_view_line_share(const struct loader_view *view, const struct line_fact *line)
{
    return line && view->line_ms > 0 ? line->ms / view->line_ms : NAN;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void view_parts(struct loader_view *view)
{
    const struct loader_fact *l = view->loader;
    int maker = l->num_workers == 0 ? FACTS_PROCESS : FACTS_WORKERS;
    const struct {
        struct part_stats *place;
        enum leat_part part;
        int where;
    } parts[] = {
        {&view->sample,   LEAT_PART_SAMPLE,   maker        },
        {&view->fetch,    LEAT_PART_FETCH,    maker        },
        {&view->collate,  LEAT_PART_COLLATE,  maker        },
        {&view->pickle,   LEAT_PART_PICKLE,   FACTS_WORKERS},
        {&view->unpickle, LEAT_PART_UNPICKLE, FACTS_PROCESS},
        {&view->pin,      LEAT_PART_PIN,      FACTS_PROCESS}
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        facts_part(view->facts, l->pid, l->loader, parts[i].where, parts[i].part, parts[i].place);
    if (l->num_workers == 0)
        view->make_ms = view->input_ms / view->batches_per_step;
    else if (!isnan(view->fetch.mean))
        view->make_ms = view->fetch.mean + (isnan(view->collate.mean) ? 0 : view->collate.mean);
}

/* Cores that other programs used, and CPU time that a hypervisor gave to other machines. 0 where
 * it was not sampled. */
static void view_others(struct loader_view *view)
{
    struct mean taken = {0}, stolen = {0}, busy = {0};
    for (size_t i = 0; i < view->facts->sys_sample_count; i++) {
        const struct sys_sample *sample = &view->facts->sys_samples[i];
        if (sample->t_ms < view->from_ms || sample->t_ms > view->to_ms)
            continue;
        mean_add(&taken, sample->cpu_ratio - sample->run_cpu_ratio);
        mean_add(&stolen, sample->steal_ratio);
        mean_add(&busy, sample->cpu_ratio);
    }
    double cores = mean_of(&taken) * view->cores, theft = mean_of(&stolen) / mean_of(&busy);
    view->foreign_cores = cores > 0 ? cores : 0;
    view->stolen = theft > 0 ? (theft < 1 ? theft : 1) : 0;
}

/* Threads of other programs that run or are ready to run. Their CPU time gives how many ran.
 * They share the cores with the run, so the same share of them was waiting as of the run's own
 * threads. The result is limited to what explains the waiting of the run, because the scheduler may
 * prefer the run. */
static double foreign_threads(const struct loader_view *view)
{
    int workers = view->loader->num_workers > 0 && !isnan(view->worker_cpu);
    double ran = view->main_cpu + (workers ? (double)view->worker_count * view->worker_cpu : 0);
    double queued =
        view->main_delay + (workers ? (double)view->worker_count * view->worker_delay : 0);
    double served = ran / (ran + queued), own = ran + queued;
    if (isnan(served) || served <= 0)
        return view->foreign_cores;
    double most = view->cores / served - (own > 1 ? own : 1),
           threads = view->foreign_cores / served;
    return threads < most ? threads : most > 0 ? most : 0;
}

int loader_view_fill(struct loader_view *view)
{
    const struct rank_facts *r = view->rank;
    view->wall_ms = step_mean(r);
    view->rest_ms = view->wall_ms - phase_mean(r, PHASE_INPUT);
    double batches = (double)r->micro_steps / (double)r->kept;
    view->batches_per_step = batches > 1 ? batches : 1;
    kept_interval(r, &view->from_ms, &view->to_ms);
    view->cores = view->facts->cpus > 0 ? (double)view->facts->cpus : 1;
    view->cores_left = cores_left(view->facts, view->from_ms, view->to_ms);
    view_others(view);
    view->idle_cores = (1 - machine_cpu(view->facts, view->from_ms, view->to_ms)) * view->cores;
    view->main_cpu = process_cpu(view->facts, r->pid, view->from_ms, view->to_ms);
    view->main_delay = process_delay(view->facts, r->pid, view->from_ms, view->to_ms);
    view_workers(view);
    view->foreign_threads = foreign_threads(view);
    view_parts(view);
    return view_lines(view);
}

void loader_view_done(struct loader_view *view)
{
    mem_free(view->lines);
    view->lines = NULL;
    view->line_count = 0;
}

double loader_view_pipe_bytes(const struct loader_view *view)
{
    const struct part_stats *pipe = view->pickle.n > 0 ? &view->pickle : &view->unpickle;
    return pipe->n > 0 ? pipe->bytes / pipe->n : NAN;
}
