/* cause_input.c: why the input is slow: one cause, or none and what is known.
 *
 * The causes exclude each other in the order in which they are tried; the first that holds is the
 * answer.
 *
 *   without workers
 *     PER_SAMPLE_OVERHEAD   a sample in memory costs less than handing it over: one index operation
 *                           per batch helps, workers do not
 *     SLOW_COLLATE          the user's collate_fn takes nearly all of the time to make a batch
 *     NO_OVERLAP            all other cases: workers overlap slow reads, decoding and transforms
 *   with workers
 *     WORKER_STARTUP        the wait is at the start of epochs, when no worker is busy
 *     PER_SAMPLE_OVERHEAD   as above
 *     CPU_OVERSUBSCRIBED    all wait for cores, so the other times mean little
 *     SLOW_HANDOVER         the training waits for unpacking, not for a worker
 *     UNEVEN_WORKERS        one slow worker delays all, because batches are returned in order
 *   with workers that are all busy
 *     SLOW_STORAGE          they wait for reads
 *     SLOW_COLLATE          collating takes longer than fetching the samples
 *     TOO_FEW_WORKERS       cores are free for more workers
 *     SLOW_SAMPLE           no core is free
 *
 * leat's own loader has neither workers nor Python code: cause_engine.c. Where it could make the
 * batches of this dataset, the finding names it as an alternative without a prediction, because
 * this run does not show how fast it would be. */
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

/* Causes that leat's loader removes, because threads replace workers and Python. It does not
 * make a slow disk faster, or one worker's share of the data smaller. */
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

/* Not offered where the loader is leat's already, with its engine or through torch. */
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
