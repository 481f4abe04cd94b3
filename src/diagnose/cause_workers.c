/* cause_workers.c: causes in the number of workers and in how they are used. */
#include "diagnose/cause.h"

#include "base/stats.h"

#include <math.h>

#define STARTUP_SHARE 0.50 /* of the input time: more than all other waiting together */
#define UNEVEN_RATIO                                                                               \
    2.0 /* one worker's time per batch over the usual one: more than batches vary */
#define UNEVEN_BATCHES 5    /* with fewer batches, one slow batch looks like a slow worker */
#define FREE_CORES     0.5  /* cores idle on average: enough for one more worker */
#define IDLE_WORKER    0.25 /* cores that a worker wants: below it, it mostly waits */
#define WORKERS_MOST                                                                               \
    16                 /* advised at most: with more, a measurement is better than a prediction    \
                        */
#define SATURATED 0.95 /* machine CPU use at which no core is free */
/* Running or ready threads of the run per core: with two (less a tenth that stack samples miss),
 * every second one waits, and half of the workers would do as much. */
#define CROWD 1.8
/* Threads of a worker that computes in one thread: main thread, feeder of the queue, server of
 * its shared memory, leat's line profiler. */
#define WORKER_THREADS 4
/* A worker packs its batch: 0.5 to 1 ms were measured for two tensors. */
#define PACK_MS 0.5
#define QUEUED                                                                                     \
    0.3 /* share of time without a core: more than two threads that sometimes share one core */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Workers that wait may outnumber the cores. Workers that compute, or queue for a core, may not:
 * more of them would take cores from other programs. At least two: one prepares a batch while
 * the other hands one over. */
int no_overlap(const struct loader_view *view, struct finding *f)
{
    struct what_if w = loader_model(view);
    loader_model_scale(&w, what_if_make_ms(&w) + PACK_MS);
    double wants = isnan(view->read_share) ? w.make_cpu_ms / what_if_make_ms(&w)
                                           : 1 - view->read_share - view->blocked_share;
    double most = larger(2, floor(view->cores / larger(wants, 0.05)));
    most = most < WORKERS_MOST ? most : WORKERS_MOST;
    w.workers = (int)larger(2, loader_model_workers(view, &w, (int)most));
    finding_cause(f, CAUSE_NO_OVERLAP);
    place_loader(view, f);
    finding_advise(f, ACTION_SET_LOADER,
                   "Use workers, so that batches are made while the model computes: "
                   "DataLoader(..., num_workers=%d, persistent_workers=True).",
                   w.workers);
    finding_argument(f, "num_workers=%d,persistent_workers=True", w.workers);
    finding_prove(f, EVIDENCE_NUM_WORKERS, 0, "loaders WHERE pid = %lld AND loader = %d",
                  (long long)view->loader->pid, view->loader->loader);
    prove_part(view, f, EVIDENCE_FETCH_TIME, LEAT_PART_FETCH, view->fetch.mean);
    prove_part(view, f, EVIDENCE_COLLATE_TIME, LEAT_PART_COLLATE, view->collate.mean);
    predict_setting(view, f, &w, "num_workers=%d,persistent_workers=True", w.workers);
    return 1;
}

/* Share of the kept input time that is spent on the first batch of an epoch. */
static double startup_share(const struct loader_view *view)
{
    const struct rank_facts *r = view->rank;
    double first = 0, all = 0;
    for (size_t i = 0; r->phase_ms[PHASE_INPUT] && i < r->count; i++) {
        double input = r->weight[i] * r->phase_ms[PHASE_INPUT][i];
        all += input;
        if (r->weight[i] == 1 && (r->flags[i] & STEP_EPOCH_START))
            first += input;
    }
    return all > 0 ? first / all : 0;
}

/* With persistent workers each epoch still begins with making one batch: that part of the wait
 * stays. */
int worker_startup(const struct loader_view *view, struct finding *f)
{
    const struct loader_fact *l = view->loader;
    double share = startup_share(view);
    if (share < STARTUP_SHARE || l->persistent_workers != 0 || l->iterations < 2)
        return 0;
    double each = l->first_wait_ms / (double)l->iterations;
    double stays = isnan(view->make_ms) ? 0 : (view->make_ms + HAND_OVER_MS) / each;
    finding_cause(f, CAUSE_WORKER_STARTUP);
    finding_advise(
        f, ACTION_KEEP_WORKERS,
        "Each of %lld epochs starts its workers again and waits %.0f ms for the first batch. Keep "
        "the workers: DataLoader(..., num_workers=%lld, persistent_workers=True).",
        (long long)l->iterations, each, (long long)l->num_workers);
    finding_argument(f, "num_workers=%lld,persistent_workers=True", (long long)l->num_workers);
    finding_prove(f, EVIDENCE_FIRST_WAIT_SHARE, share, "steps WHERE id>>40 = %d AND flags & 1",
                  view->rank->rank);
    finding_prove(f, EVIDENCE_FIRST_WAIT, each, "loaders WHERE pid = %lld AND loader = %d",
                  (long long)l->pid, l->loader);
    predict(view, f, view->wall_ms - share * view->input_ms * (stays < 1 ? 1 - stays : 0),
            CHANGE_OF_SETTING, "persistent_workers=True");
    return 1;
}

/* ---- one slow worker ------------------------------------------------------------------------- */

struct each_worker {
    int id;
    double batch_ms;
};

/* The time per batch of each worker: from input_parts, which are summed over epochs, else for
 * each process. Returns how many workers have enough batches. */
static size_t per_worker(const struct loader_view *view, struct each_worker *each, size_t most)
{
    const struct loader_fact *l = view->loader;
    size_t n = 0;
    for (int id = 0; id < l->num_workers && n < most; id++) {
        struct part_stats fetch, collate;
        facts_part(view->facts, l->pid, l->loader, id, LEAT_PART_FETCH, &fetch);
        facts_part(view->facts, l->pid, l->loader, id, LEAT_PART_COLLATE, &collate);
        if (fetch.n >= UNEVEN_BATCHES)
            each[n++] = (struct each_worker){id, (fetch.total + collate.total) / fetch.n};
    }
    if (n > 0)
        return n;
    for (size_t i = 0; i < view->facts->worker_count && n < most; i++) {
        const struct worker_fact *w = &view->facts->workers[i];
        if (w->parent_pid == l->pid && (w->loader < 0 || w->loader == l->loader) &&
            w->batches >= UNEVEN_BATCHES)
            each[n++] = (struct each_worker){w->worker_id, w->busy_ms / (double)w->batches};
    }
    return n;
}

int uneven_workers(const struct loader_view *view, struct finding *f)
{
    struct each_worker each[256], slowest = {-1, 0};
    double per_batch[256];
    size_t n = per_worker(view, each, sizeof each / sizeof *each);
    for (size_t i = 0; i < n; i++) {
        per_batch[i] = each[i].batch_ms;
        if (each[i].batch_ms > slowest.batch_ms)
            slowest = each[i];
    }
    if (n < 2 || view->workers_mixed)
        return 0;
    /* With two workers the median is the mean of both, which hides the slow one. So the lower
     * one of the two in the middle is the usual worker. */
    double usual = stats_quantile(per_batch, n, (double)((n - 1) / 2) / (double)(n - 1));
    if (!(slowest.batch_ms >= UNEVEN_RATIO * usual))
        return 0;
    finding_cause(f, CAUSE_UNEVEN_WORKERS);
    place_loader(view, f);
    finding_advise(f, ACTION_BALANCE_WORKERS,
                   "Worker %d needs %.1f ms per batch, the usual worker %.1f ms. Batches are "
                   "returned in order, so all wait for it. Give each worker equal work "
                   "(shuffle=True, or shards of equal size)%s.",
                   slowest.id, slowest.batch_ms, usual,
                   view->loader->iterable == 1
                       ? "; an IterableDataset must split its data with get_worker_info()"
                       : "");
    finding_argument(f, "worker=%d", slowest.id);
    finding_prove(f, EVIDENCE_SLOWEST_WORKER, slowest.batch_ms,
                  "workers WHERE parent_pid = %lld AND worker_id = %d",
                  (long long)view->loader->pid, slowest.id);
    finding_prove(f, EVIDENCE_USUAL_WORKER, usual, "workers WHERE parent_pid = %lld",
                  (long long)view->loader->pid);
    f->worker = slowest.id;
    struct what_if w = loader_model(view);
    loader_model_scale(&w, usual);
    predict(view, f, what_if_step_ms(&w), CHANGE_OF_CODE, "worker %d as fast as the others",
            slowest.id);
    return 1;
}

/* ---- too few, too many ----------------------------------------------------------------------- */

/* Cores that one worker would use if it got them. */
static double worker_demand(const struct loader_view *view)
{
    return view->worker_cpu + (isnan(view->worker_delay) ? 0 : view->worker_delay);
}

/* A worker that mostly waits for storage, the network or a sleep needs no core; one that waits
 * for a core does. Where waiting for a core was not measured, it is assumed unless cores are
 * idle. */
static int mostly_waits(const struct loader_view *view)
{
    if (isnan(view->worker_delay) && !(view->idle_cores >= FREE_CORES))
        return 0;
    return worker_demand(view) <= IDLE_WORKER;
}

/* More workers are possible when cores are idle, or when workers need almost no core. In a short
 * run, where neither was sampled: while there are fewer workers than cores. */
static int has_room(const struct loader_view *view)
{
    if (isnan(view->idle_cores) && isnan(view->worker_cpu))
        return (double)view->loader->num_workers < view->cores;
    return view->idle_cores >= FREE_CORES || mostly_waits(view);
}

/* The largest useful number of workers. Workers that compute need idle cores, as many as one of
 * them uses now; workers that wait need none. */
static int workers_most(const struct loader_view *view)
{
    double have = (double)view->loader->num_workers;
    double cpu = isnan(view->worker_cpu) ? 1 : view->worker_cpu;
    if (mostly_waits(view))
        return (int)larger(have + 1, WORKERS_MOST);
    if (isnan(view->idle_cores))
        return (int)larger(have + 1, view->cores);
    double more = floor(view->idle_cores / larger(cpu, IDLE_WORKER));
    return (int)(have + (more < 1 ? 1 : more < WORKERS_MOST ? more : WORKERS_MOST));
}

int too_few_workers(const struct loader_view *view, struct finding *f)
{
    if (!workers_limit(view) || !has_room(view))
        return 0;
    int have = (int)view->loader->num_workers, most = workers_most(view);
    struct what_if w = loader_model(view);
    double wanted = what_if_make_ms(&w) * view->batches_per_step;
    double demand = larger(view->rest_ms, device_work_ms(view->facts, view->rank));
    double needed = ceil(wanted / larger(demand, 0.05 * view->wall_ms));
    w.workers = loader_model_workers(view, &w, most);
    w.workers = w.workers <= have ? have + 1 : w.workers;
    finding_cause(f, CAUSE_TOO_FEW_WORKERS);
    place_loader(view, f);
    finding_advise(f, ACTION_SET_LOADER,
                   "The %d workers are busy %.0f %% of the time and cores are free: "
                   "DataLoader(..., num_workers=%d, persistent_workers=True)%s.",
                   have, 100 * view->worker_busy, w.workers,
                   w.workers >= most && needed > most ? ". To use more, measure first" : "");
    finding_argument(f, "num_workers=%d,persistent_workers=True", w.workers);
    prove_busy(view, f);
    finding_prove(f, EVIDENCE_WORKERS_NEEDED, needed, "workers WHERE parent_pid = %lld",
                  (long long)view->loader->pid);
    if (!isnan(view->idle_cores))
        finding_prove(f, EVIDENCE_IDLE_CORES, view->idle_cores, "sys_samples");
    predict_setting(view, f, &w, "num_workers=%d,persistent_workers=True", w.workers);
    return 1;
}

/* The largest number of threads of a worker. */
static double worker_threads(const struct loader_view *view)
{
    double most = NAN;
    for (size_t i = 0; i < view->facts->worker_count; i++) {
        const struct worker_fact *w = &view->facts->workers[i];
        size_t count;
        const struct proc_sample *p = facts_samples(view->facts, w->pid, &count);
        for (size_t j = 0; j < count && w->parent_pid == view->loader->pid; j++)
            if (p[j].threads > 0)
                most = isnan(most) ? (double)p[j].threads : larger(most, (double)p[j].threads);
    }
    return most;
}

/* Running or ready threads of the run per core; NaN where the kernel did not report ready
 * threads. Only the main thread of each process is counted as ready, so this is a lower bound. */
static double crowd(const struct loader_view *view)
{
    double have = (double)view->loader->num_workers;
    double rest = isnan(view->main_cpu) ? 0 : view->main_cpu + view->main_delay;
    return (have * (view->worker_cpu + view->worker_delay) + (isnan(rest) ? 0 : rest)) /
           view->cores;
}

/* Workers that compute in several threads, at least two per core together. Ready threads other
 * than the main thread are not visible, but the main thread's waiting for a core is. */
static int crowded_by_threads(const struct loader_view *view)
{
    double extra = worker_threads(view) - WORKER_THREADS;
    return extra > 0 && view->worker_busy >= BUSY_SHARE && view->worker_delay >= QUEUED &&
           (double)view->loader->num_workers * (1 + extra) >= 2 * view->cores;
}

/* The run itself has too many threads for its cores; whether workers are busy, or the training
 * is too slow to take their batches, follows from that. Where waiting for cores was not
 * measured: the machine is full, and the workers alone could fill it and use most of it. */
static int is_crowded(const struct loader_view *view)
{
    double have = (double)view->loader->num_workers, ratio = crowd(view);
    double full = 1 - view->idle_cores / view->cores;
    if (!isnan(ratio))
        return !(view->idle_cores >= FREE_CORES) && (ratio >= CROWD || crowded_by_threads(view));
    return view->worker_busy >= BUSY_SHARE && full >= SATURATED && have > view->cores &&
           view->worker_cpu * have >= 0.5 * view->cores;
}

int cpu_oversubscribed(const struct loader_view *view, struct finding *f)
{
    if (!is_crowded(view))
        return 0;
    double have = (double)view->loader->num_workers, threads = worker_threads(view);
    struct what_if w = loader_model(view);
    int most = (int)(have < floor(view->cores_left) ? have : floor(view->cores_left));
    w.workers = loader_model_workers(view, &w, most > 1 ? most : 1);
    int fewer = have > view->cores; /* else their threads are too many */
    finding_cause(f, CAUSE_CPU_OVERSUBSCRIBED);
    place_loader(view, f);
    if (fewer) {
        finding_advise(f, ACTION_SET_LOADER,
                       "%.0f workers and the training share %.0f cores; each worker gets %.2f of a "
                       "core. Use DataLoader(..., num_workers=%d), and make a sample cheaper "
                       "(smaller images, decoded or cached data).",
                       have, view->cores, view->worker_cpu, w.workers);
        finding_argument(f, "num_workers=%d", w.workers);
    } else
        finding_advise(f, ACTION_LIMIT_THREADS,
                       "%.0f workers with up to %.0f threads each, and the training, share %.0f "
                       "cores. Let each worker compute in one thread (torch.set_num_threads(1), "
                       "cv2.setNumThreads(0), OMP_NUM_THREADS=1).",
                       have, threads, view->cores);
    prove_busy(view, f);
    finding_prove(f, EVIDENCE_WORKER_CORES, view->worker_cpu,
                  "proc_samples WHERE pid IN (SELECT pid FROM workers WHERE parent_pid = %lld)",
                  (long long)view->loader->pid);
    if (!isnan(view->worker_delay))
        finding_prove(f, EVIDENCE_WORKER_QUEUED, view->worker_delay,
                      "proc_samples WHERE pid IN (SELECT pid FROM workers WHERE parent_pid = %lld)",
                      (long long)view->loader->pid);
    if (!isnan(view->main_delay))
        finding_prove(f, EVIDENCE_TRAINING_QUEUED, view->main_delay,
                      "proc_samples WHERE pid = %lld", (long long)view->rank->pid);
    if (!isnan(crowd(view)))
        finding_prove(f, EVIDENCE_READY_THREADS, crowd(view), "proc_samples");
    if (!isnan(view->idle_cores))
        finding_prove(f, EVIDENCE_MACHINE_CPU, 1 - view->idle_cores / view->cores, "sys_samples");
    if (fewer)
        predict_setting(view, f, &w, "num_workers=%d", w.workers);
    else
        finding_prove(f, EVIDENCE_WORKER_THREADS, threads,
                      "proc_samples WHERE pid IN (SELECT pid FROM workers WHERE parent_pid = %lld)",
                      (long long)view->loader->pid);
    return 1;
}
