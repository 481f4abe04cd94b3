/* step_iterations.c: which iterations over a loader train, and which evaluate.
 *
 * PyTorch does not distinguish them: a training loop and an evaluation loop fetch alike. But the
 * batches of a training lead to a backward. So each backward credits an iteration:
 *
 *   - among the iterations that brought a batch since the previous backward, one that trains
 *     already, else the one fetched last (it then trains for good);
 *   - not one whose batches were all requested without gradients, nor one that ended in the main
 *     thread after its last batch: those were evaluations. A background thread runs ahead of the
 *     training and may have reached the end;
 *   - the others share the credit. An iteration that shares it twice in a row, with as many
 *     batches, trains too: a loop that draws from two loaders in every step.
 *
 * In a segment without a backward (none is hooked, or the script makes its gradients by other
 * means) the optimizer's step counts instead. An iteration that is fetched inside the fetches of
 * another (a loader wrapped in a loader) is what the outer one is.
 *
 * The same pass adds up the totals of each loader.
 */
#include "collect/step_builder_internal.h"

int iteration_root(const struct step_builder *sb, int index)
{
    for (int depth = 0; depth < 8 && sb->iterations[index].parent >= 0; depth++)
        index = sb->iterations[index].parent;
    return index;
}

bool iteration_trains(const struct step_builder *sb, int index)
{
    return index >= 0 &&
           (sb->iterations[index].trains || sb->iterations[iteration_root(sb, index)].trains);
}

static uint32_t loader_slot(uint32_t id)
{
    return id < REC_LOADERS ? id : REC_LOADERS - 1;
}

/* Counts an iteration in its loader's totals as training or evaluation; a later judgement corrects
 * an earlier one. */
void iteration_judge(struct step_builder *sb, int index, bool trains)
{
    struct iteration *it = &sb->iterations[index];
    uint8_t as = trains ? 1 : 2;
    if (it->counted == as || it->counted == 1)
        return;
    struct loader_totals *loader = &sb->loaders[loader_slot(it->loader)];
    loader->evaluated += trains ? (it->counted == 2 ? -1 : 0) : 1;
    loader->trained += trains;
    it->counted = as;
}

/* Removes every reference to an iteration that is replaced. */
static void forget(struct step_builder *sb, size_t index)
{
    for (size_t i = 0; i < sb->iteration_count; i++)
        if (sb->iterations[i].parent == (int16_t)index)
            sb->iterations[i].parent = -1;
    for (size_t i = sb->head; i < sb->credited; i++)
        if (sb->pending[i].iteration == (int16_t)index)
            sb->pending[i].iteration = -1;
    if (sb->last_iteration == (int16_t)index)
        sb->last_iteration = -1;
}

static int find_iteration(struct step_builder *sb, uint32_t loader, uint32_t serial)
{
    size_t oldest = 0;
    if (sb->last_iteration >= 0 && sb->iterations[sb->last_iteration].serial == serial &&
        sb->iterations[sb->last_iteration].loader == loader)
        return sb->last_iteration;
    for (size_t i = sb->iteration_count; i-- > 0;) {
        if (sb->iterations[i].serial == serial && sb->iterations[i].loader == loader)
            return (int)i;
        if (sb->iterations[i].last_use < sb->iterations[oldest].last_use)
            oldest = i;
    }
    if (sb->iteration_count < MAX_ITERATIONS)
        oldest = sb->iteration_count++;
    else
        forget(sb, oldest);
    sb->iterations[oldest] =
        (struct iteration){.used = true, .loader = loader, .serial = serial, .parent = -1};
    sb->loaders[loader_slot(loader)].iterations++;
    return (int)oldest;
}

static void sum_loader(struct step_builder *sb, const struct pending *p, struct iteration *it)
{
    struct loader_totals *loader = &sb->loaders[loader_slot(it->loader)];
    uint64_t ns = p->rec.t1_ns - p->rec.t0_ns;
    bool batch = p->rec.kind == LEAT_REC_FETCH && !(p->rec.flags & LEAT_REC_END);
    sb->loader_used[loader_slot(it->loader)] = true;
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

/* Records come when their span ends: an inner one comes just before the enclosing one. */
static void link_nested(struct step_builder *sb, const struct pending *p, int index)
{
    const struct rec *r = &p->rec;
    int last = sb->last_iteration;
    if (last >= 0 && last != index && sb->last_tid == p->tid && r->t0_ns <= sb->last_t0_ns &&
        r->t1_ns >= sb->last_t1_ns && r->t1_ns - r->t0_ns > sb->last_t1_ns - sb->last_t0_ns &&
        iteration_root(sb, index) != last)
        sb->iterations[last].parent = (int16_t)index;
    sb->last_iteration = (int16_t)index;
    sb->last_t0_ns = r->t0_ns;
    sb->last_t1_ns = r->t1_ns;
    sb->last_tid = p->tid;
}

static void note_fetch(struct step_builder *sb, struct pending *p)
{
    int index = find_iteration(sb, p->rec.id, (uint32_t)(p->rec.arg >> 32));
    struct iteration *it = &sb->iterations[index];
    p->iteration = (int16_t)index;
    it->background = p->tid != sb->tid;
    it->last_use = p->order;
    sum_loader(sb, p, it);
    link_nested(sb, p, index);
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

static void share_credit(struct step_builder *sb, struct iteration *it)
{
    if (it->shared_at != 0 && it->shared_at + 1 == sb->credits && it->shared_fetched == it->fetched)
        it->trains = true;
    it->shared_at = sb->credits;
    it->shared_fetched = it->fetched;
}

static void credit_backward(struct step_builder *sb)
{
    struct iteration *best = NULL;
    bool any = false;
    for (size_t i = 0; i < sb->iteration_count; i++) {
        struct iteration *it = &sb->iterations[i];
        any |= it->fetched > 0;
        if (may_train(it) && (!best || it->trains > best->trains ||
                              (it->trains == best->trains && it->last_use > best->last_use)))
            best = it;
    }
    if (!any)
        return;
    sb->credits++;
    if (best)
        best->trains = true;
    for (size_t i = 0; i < sb->iteration_count; i++) {
        struct iteration *it = &sb->iterations[i];
        if (may_train(it) && !it->trains)
            share_credit(sb, it);
        it->fetched = 0;
        it->nograd = false;
    }
}

static bool is_backward(const struct step_builder *sb, const struct rec *r)
{
    return r->kind == LEAT_REC_BACKWARD ||
           (r->kind == LEAT_REC_NAMED && r->id < REC_NAMES && sb->name_class[r->id] == NAME_PHASE &&
            sb->name_phase[r->id] == PHASE_BACKWARD);
}

void iterations_credit(struct step_builder *sb, size_t to)
{
    for (; sb->credited < to; sb->credited++) {
        struct pending *p = &sb->pending[sb->credited];
        if (p->rec.kind == LEAT_REC_FETCH || p->rec.kind == LEAT_REC_ITER) {
            note_fetch(sb, p);
        } else if (p->tid == sb->tid && is_backward(sb, &p->rec)) {
            sb->credited_backward = true;
            credit_backward(sb);
        }
    }
}

void iterations_end_segment(struct step_builder *sb, bool by_optimizer)
{
    if (by_optimizer && !sb->credited_backward)
        credit_backward(sb);
    sb->credited_backward = false;
}

/* Whether the next backward may still change what an iteration of this segment is: it brought a
 * batch after the last backward (the next step's, fetched ahead), or it has shared a credit once.
 */
bool iterations_undecided(const struct step_builder *sb)
{
    for (size_t i = 0; i < sb->iteration_count; i++) {
        const struct iteration *it = &sb->iterations[i];
        if (!it->trains && (may_train(it) || (it->shared_at == sb->credits && it->shared_at != 0)))
            return true;
    }
    return false;
}
