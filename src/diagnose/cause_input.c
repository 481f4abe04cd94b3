/* cause_input.c: why the input is slow: one cause, or none and what is known.
 *
 * The causes are tried in the order in which they exclude each other; the first that holds is the
 * answer, and no second is given.
 *
 *   without workers
 *     PER_SAMPLE_OVERHEAD   samples out of memory cost less than handing them over: not workers but
 *                           one gather a batch cures it
 *     SLOW_COLLATE          a collate_fn of the user's that takes nearly all of the making
 *     NO_OVERLAP            everything else: a slow read, decode or transform is overlapped by
 *                           workers, so their absence comes first
 *   with workers
 *     WORKER_STARTUP        the wait is at the start of epochs: no worker is busy then
 *     PER_SAMPLE_OVERHEAD   as above
 *     CPU_OVERSUBSCRIBED    all queue for cores, so no time says much of the work itself
 *     SLOW_HANDOVER         the training waits for unpacking, not for a worker
 *     UNEVEN_WORKERS        one worker holds up all, because batches come in order
 *   with workers that are all busy
 *     SLOW_STORAGE          they wait for reads
 *     SLOW_COLLATE          they put batches together for longer than they fetch samples
 *     TOO_FEW_WORKERS       there is room for more
 *     SLOW_SAMPLE           there is none
 *
 * Batches of leat's own loader have neither workers nor Python code: cause_engine.c. Where it could
 * make those of this dataset, it is named beside the cure, without a prediction: nothing of this
 * run tells how fast it would be.
 */
#include "diagnose/cause.h"

#include <math.h>

typedef int cause_fn(const struct loader_view *view, struct finding *f);

static cause_fn *const without_workers[] = {per_sample_overhead, slow_collate_alone, no_overlap};
static cause_fn *const with_workers[] = {worker_startup, per_sample_overhead, cpu_oversubscribed,
                                         slow_handover,  uneven_workers,      slow_storage,
                                         slow_collate,   too_few_workers,     slow_sample};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int find_cause(const struct loader_view *view, struct finding *f)
{
    const struct engine_fact *engine =
        facts_engine(view->facts, view->loader->pid, view->loader->loader);
    if (engine)
        return explain_engine(view, engine, f);
    int alone = view->loader->num_workers == 0;
    cause_fn *const *causes = alone ? without_workers : with_workers;
    size_t n = alone ? COUNT(without_workers) : COUNT(with_workers);
    for (size_t i = 0; view->loader->num_workers >= 0 && i < n; i++)
        if (causes[i](view, f))
            return 1;
    return 0;
}

/* Cured by threads in place of workers and Python. A slow disk, or a worker with more to do than
 * the others, is not. */
static int is_cured(enum cause cause)
{
    switch (cause) {
    case CAUSE_PER_SAMPLE_OVERHEAD:
    case CAUSE_NO_OVERLAP:
    case CAUSE_WORKER_STARTUP:
    case CAUSE_CPU_OVERSUBSCRIBED:
    case CAUSE_SLOW_HANDOVER:
    case CAUSE_SLOW_COLLATE:
    case CAUSE_TOO_FEW_WORKERS:
    case CAUSE_SLOW_SAMPLE: return 1;
    default: return 0;
    }
}

/* Not where the loader is leat's already: with its engine or, for a reason that its plan() names,
 * through torch. */
static void offer_loader(const struct loader_view *view, struct finding *f)
{
    const struct loader_fact *l = view->loader;
    if (l->engine_readable != 1 || l->own == 1 || facts_engine(view->facts, l->pid, l->loader) ||
        !is_cured(f->cause))
        return;
    finding_offer(f, ACTION_USE_LEAT_LOADER,
                  "Or use leat.DataLoader with the same arguments: it makes the batches of a %s in "
                  "C threads. Its gain was not measured.",
                  l->dataset);
}

static void unclear(const struct loader_view *view, struct finding *f)
{
    if (isnan(view->worker_busy)) {
        finding_advise(f, ACTION_INSPECT_LOADER,
                       "The wait is %.2f ms per step, in next() of the loader created at %s. Check "
                       "what its dataset does for each batch.",
                       view->input_ms,
                       view->loader->where[0] ? view->loader->where : "an unknown place");
        return;
    }
    prove_busy(view, f);
    finding_advise(
        f, ACTION_INSPECT_LOADER,
        "The wait is %.2f ms per step. A worker needs %.2f ms per batch, and the %zu workers are "
        "busy %.0f %% of the time. Make a sample cheaper, or try another num_workers (now %lld).",
        view->input_ms, view->make_ms, view->worker_count, 100 * view->worker_busy,
        (long long)view->loader->num_workers);
}

void explain_input(const struct facts *facts, const struct rank_facts *rank, double input_ms,
                   struct finding *f)
{
    if (!f)
        return;
    const struct loader_fact *loader = feeding_loader(facts, rank->rank);
    if (!loader) {
        finding_advise(f, ACTION_ADD_LOADER,
                       "The wait is in code that the script marks as input; no DataLoader was "
                       "seen. Make batches ahead of the training, in a DataLoader with workers.");
        return;
    }
    struct loader_view view = {
        .facts = facts, .rank = rank, .loader = loader, .input_ms = input_ms};
    if (loader_view_fill(&view) == 0) {
        if (loader->batches > 0 && !isnan(loader->wait_ms))
            finding_prove(f, EVIDENCE_WAIT_PER_BATCH, loader->wait_ms / (double)loader->batches,
                          "loaders WHERE pid = %lld AND loader = %d", (long long)loader->pid,
                          loader->loader);
        if (!find_cause(&view, f))
            unclear(&view, f);
        offer_loader(&view, f);
        if (f->where_count == 0)
            finding_place(f, loader->where, input_ms / view.wall_ms, "the step");
    }
    loader_view_done(&view);
}
