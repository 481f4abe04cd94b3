/* fold_credit.c: which iterations over a loader train, and which evaluate.
 *
 * Nothing in PyTorch says so: a training loop and an evaluation loop fetch alike. What tells them
 * apart is that the batches of one lead to a backward. So each backward credits an iteration:
 *
 *   - among the iterations that brought a batch since the previous backward, one that trains
 *     already, else the one fetched last (it then trains for good);
 *   - not one whose batches were all asked for without gradients, nor one that came to its end in
 *     the main thread after its last batch: those were evaluations. A background thread runs ahead
 *     of the training and may well have reached the end;
 *   - the others share the credit. An iteration that shares it twice in a row, with as many
 *     batches, trains too: a loop that draws from two loaders in every step.
 *
 * Where a segment has no backward at all (none is hooked, or the script makes its gradients by
 * other means) the optimizer's step takes its place. An iteration that is fetched from inside the
 * fetches of another (a loader wrapped in a loader) is what the outer one is.
 *
 * The same pass sums up the totals of each loader, since it sees every record once.
 */
#include "collect/fold_internal.h"

int fold_iteration_root(const struct fold *f, int index)
{
    for (int depth = 0; depth < 8 && f->iterations[index].parent >= 0; depth++)
        index = f->iterations[index].parent;
    return index;
}

bool fold_iteration_trains(const struct fold *f, int index)
{
    return index >= 0 &&
           (f->iterations[index].trains || f->iterations[fold_iteration_root(f, index)].trains);
}

static uint32_t loader_slot(uint32_t id)
{
    return id < REC_LOADERS ? id : REC_LOADERS - 1;
}

/* Counts an iteration into its loader's totals as what it turned out to be; a later, better
 * judgement corrects an earlier one. */
void fold_iteration_count(struct fold *f, int index, bool trains)
{
    struct iteration *it = &f->iterations[index];
    uint8_t as = trains ? 1 : 2;
    if (it->counted == as || it->counted == 1)
        return;
    struct fold_loader *loader = &f->loaders[loader_slot(it->loader)];
    loader->evaluated += trains ? (it->counted == 2 ? -1 : 0) : 1;
    loader->trained += trains;
    it->counted = as;
}

/* An evicted iteration must not stay anybody's parent. */
static void forget(struct fold *f, size_t index)
{
    for (size_t i = 0; i < f->iteration_count; i++)
        if (f->iterations[i].parent == (int16_t)index)
            f->iterations[i].parent = -1;
    for (size_t i = f->head; i < f->credited; i++)
        if (f->pending[i].iteration == (int16_t)index)
            f->pending[i].iteration = -1;
    if (f->last_iteration == (int16_t)index)
        f->last_iteration = -1;
}

static int find_iteration(struct fold *f, uint32_t loader, uint32_t serial)
{
    size_t oldest = 0;
    if (f->last_iteration >= 0 && f->iterations[f->last_iteration].serial == serial &&
        f->iterations[f->last_iteration].loader == loader)
        return f->last_iteration;
    for (size_t i = f->iteration_count; i-- > 0;) {
        if (f->iterations[i].serial == serial && f->iterations[i].loader == loader)
            return (int)i;
        if (f->iterations[i].last_use < f->iterations[oldest].last_use)
            oldest = i;
    }
    if (f->iteration_count < FOLD_ITERATIONS)
        oldest = f->iteration_count++;
    else
        forget(f, oldest);
    f->iterations[oldest] =
        (struct iteration){.used = true, .loader = loader, .serial = serial, .parent = -1};
    f->loaders[loader_slot(loader)].iterations++;
    return (int)oldest;
}

static void sum_loader(struct fold *f, const struct pending *p, struct iteration *it)
{
    struct fold_loader *loader = &f->loaders[loader_slot(it->loader)];
    uint64_t ns = p->rec.t1_ns - p->rec.t0_ns;
    bool batch = p->rec.kind == LEAT_REC_FETCH && !(p->rec.flags & LEAT_REC_END);
    f->loader_used[loader_slot(it->loader)] = true;
    if (it->background) {
        loader->background_ns += ns;
    } else {
        loader->wait_ns += ns;
        if (!it->first_fetched)
            loader->first_wait_ns += ns;
    }
    if (p->rec.kind == LEAT_REC_FETCH)
        it->first_fetched = true;
    if (batch) {
        loader->batches++;
        loader->samples += (uint32_t)p->rec.arg;
    }
}

/* Records come when their span ends, so an inner one comes just before the one around it. */
static void link_nested(struct fold *f, const struct pending *p, int index)
{
    const struct rec *r = &p->rec;
    int last = f->last_iteration;
    if (last >= 0 && last != index && f->last_tid == p->tid && r->t0_ns <= f->last_t0_ns &&
        r->t1_ns >= f->last_t1_ns && r->t1_ns - r->t0_ns > f->last_t1_ns - f->last_t0_ns &&
        fold_iteration_root(f, index) != last)
        f->iterations[last].parent = (int16_t)index;
    f->last_iteration = (int16_t)index;
    f->last_t0_ns = r->t0_ns;
    f->last_t1_ns = r->t1_ns;
    f->last_tid = p->tid;
}

static void note_fetch(struct fold *f, struct pending *p)
{
    int index = find_iteration(f, p->rec.id, (uint32_t)(p->rec.arg >> 32));
    struct iteration *it = &f->iterations[index];
    p->iteration = (int16_t)index;
    it->background = p->tid != f->tid;
    it->last_use = p->order;
    sum_loader(f, p, it);
    link_nested(f, p, index);
    if (p->rec.kind != LEAT_REC_FETCH)
        return;
    if (p->rec.flags & LEAT_REC_END) {
        it->ended = true;
        it->shared_at = 0;
        return;
    }
    bool nograd = (p->rec.flags & LEAT_REC_NOGRAD) != 0;
    it->nograd = nograd && (it->fetched == 0 || it->nograd);
    it->ended = false;
    it->fetched++;
}

static bool may_train(const struct iteration *it)
{
    return it->fetched > 0 && it->parent < 0 && !it->nograd && (!it->ended || it->background);
}

static void share_credit(struct fold *f, struct iteration *it)
{
    if (it->shared_at != 0 && it->shared_at + 1 == f->credits && it->shared_fetched == it->fetched)
        it->trains = true;
    it->shared_at = f->credits;
    it->shared_fetched = it->fetched;
}

static void credit_backward(struct fold *f)
{
    struct iteration *best = NULL;
    bool any = false;
    for (size_t i = 0; i < f->iteration_count; i++) {
        struct iteration *it = &f->iterations[i];
        any |= it->fetched > 0;
        if (may_train(it) && (!best || it->trains > best->trains ||
                              (it->trains == best->trains && it->last_use > best->last_use)))
            best = it;
    }
    if (!any)
        return;
    f->credits++;
    if (best)
        best->trains = true;
    for (size_t i = 0; i < f->iteration_count; i++) {
        struct iteration *it = &f->iterations[i];
        if (may_train(it) && !it->trains)
            share_credit(f, it);
        it->fetched = 0;
        it->nograd = false;
    }
}

static bool is_backward(const struct fold *f, const struct rec *r)
{
    return r->kind == LEAT_REC_BACKWARD ||
           (r->kind == LEAT_REC_NAMED && r->id < REC_NAMES && f->name_class[r->id] == NAME_PHASE &&
            f->name_phase[r->id] == PHASE_BACKWARD);
}

void fold_credit(struct fold *f, size_t to)
{
    for (; f->credited < to; f->credited++) {
        struct pending *p = &f->pending[f->credited];
        if (p->rec.kind == LEAT_REC_FETCH || p->rec.kind == LEAT_REC_ITER) {
            note_fetch(f, p);
        } else if (p->tid == f->tid && is_backward(f, &p->rec)) {
            f->credited_backward = true;
            credit_backward(f);
        }
    }
}

void fold_credit_end(struct fold *f, bool by_optimizer)
{
    if (by_optimizer && !f->credited_backward)
        credit_backward(f);
    f->credited_backward = false;
}

/* Whether the next backward may still change what an iteration of this segment is: it brought a
 * batch after the last backward (the next step's, fetched ahead), or it has shared a credit once.
 */
bool fold_undecided(const struct fold *f)
{
    for (size_t i = 0; i < f->iteration_count; i++) {
        const struct iteration *it = &f->iterations[i];
        if (!it->trains && (may_train(it) || (it->shared_at == f->credits && it->shared_at != 0)))
            return true;
    }
    return false;
}
