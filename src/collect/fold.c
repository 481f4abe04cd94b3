/* fold.c: finding the segments of the training, and the batches of an inference.
 *
 * Records come ordered by end time within a thread, and in any order between threads. They are
 * merged by end time, and looked at only when nothing earlier can still come: rings are drained one
 * after the other, so a record that ended while an earlier ring was being read may be in hand
 * before one that ended earlier. Each feed is a whole drain; what ended before the newest record of
 * the drain before is complete. With a single thread there is nothing to wait for.
 *
 * A segment ends where an optimizer has stepped, or the backward that optimizers stepped in, or at
 * leat.step(). Until the first of these the process may be an inference: each batch is given out as
 * a step, and its records are kept, so that when an optimizer does come the steps are taken back
 * and all is painted again as what it was: an evaluation, or the micro-steps of the first step.
 */
#include "collect/fold_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int fold_new(uint64_t start_ns, uint32_t signals, const struct fold_sink *sink,
             struct fold **ret_fold)
{
    struct fold *f = mem_alloc(sizeof *f);
    if (!f)
        return -ENOMEM;
    f->start_ns = start_ns;
    f->signals = signals;
    f->sink = *sink;
    f->last_iteration = -1;
    *ret_fold = f;
    return 0;
}

void fold_free(struct fold *f)
{
    if (!f)
        return;
    mem_free(f->pending);
    mem_free(f->nested.ids);
    mem_free(f->doubt_ids.ids);
    for (size_t i = 0; i < FOLD_QUEUE; i++)
        mem_free(f->queue[i].optimizers.ids);
    fold_scratch_done(&f->scratch);
    mem_free(f);
}

int fold_name(struct fold *f, uint32_t id, const char *name)
{
    if (id >= REC_NAMES)
        return -EINVAL;
    strncpy(f->names[id], name, REC_NAME_BYTES - 1);
    f->name_class[id] = NAME_USER;
    if (strcmp(name, "checkpoint") == 0)
        f->name_class[id] = NAME_CHECKPOINT;
    else if (strcmp(name, "eval") == 0)
        f->name_class[id] = NAME_EVAL;
    for (int i = 0; i < PHASES; i++) {
        if (strcmp(name, leat_phase_names[i]) != 0)
            continue;
        f->name_class[id] = NAME_PHASE;
        f->name_phase[id] = (uint8_t)i;
    }
    return 0;
}

void fold_signals(struct fold *f, uint32_t signals)
{
    f->signals |= signals;
}

int64_t fold_steps(const struct fold *f)
{
    return f->given;
}

/* A round that is as long as the last one is most likely complete, though not given out yet. */
int64_t fold_step_at(const struct fold *f)
{
    uint32_t usual = f->last_round_segments ? f->last_round_segments : 1;
    size_t segments = f->round.segments + f->doubt.segments + f->queued;
    return f->given + (int64_t)(segments / usual);
}

const struct fold_loader *fold_loader(const struct fold *f, uint32_t id)
{
    return id < REC_LOADERS && f->loader_used[id] ? &f->loaders[id] : NULL;
}

/* ---- segments ----------------------------------------------------------------------------- */

static struct paint_job open_job(struct fold *f, size_t from, size_t to, int32_t tid, uint64_t end)
{
    return (struct paint_job){.from = from,
                              .to = to,
                              .tid = tid,
                              .t0_ns = f->started ? f->cut_ns : end,
                              .t1_ns = end,
                              .since_ns = f->started ? f->segment_ns : 0,
                              .find_start = !f->started,
                              .step = f->given,
                              .gap = &f->gap};
}

static void finish_segment(struct fold *f)
{
    struct segment *s = &f->queue[0];
    fold_round_begin(f, s);
    struct paint_job job = open_job(f, s->from, s->to, s->tid, s->end_ns);
    struct tally tally = f->partial;
    job.all_train = s->is_step && !f->saw_backward && !f->saw_optimizer;
    if (job.all_train)
        tally.flags |= STEP_INFERENCE;
    tally.segments = 1;
    tally.end_ns = s->end_ns;
    fold_paint(f, &job, &tally);
    fold_eval_flush(f);
    fold_round_add(f, s, &tally);
    f->partial = (struct tally){0};
    f->gap = (struct gap_state){0};
    f->started = true;
    f->segment_ns = f->cut_ns = s->end_ns;
    f->head = s->to;
    struct segment reuse = *s;
    memmove(&f->queue[0], &f->queue[1], (f->queued - 1) * sizeof f->queue[0]);
    f->queue[--f->queued] = reuse; /* keeps its list of ids for the next one */
}

static void finish_decided(struct fold *f, bool all)
{
    while (f->queued > 0) {
        const struct segment *s = &f->queue[0];
        if (s->undecided && s->credits == f->credits && !all && f->queued < FOLD_QUEUE)
            return;
        finish_segment(f);
    }
}

static void start_training(struct fold *f, int32_t tid)
{
    if (f->given > 0 && f->sink.drop_steps)
        f->sink.drop_steps(f->sink.context);
    f->given = 0;
    f->trains = true;
    f->batch_open = false;
    f->tid = tid;
    f->has_tid = true;
}

/* Record `index` is the last of a segment. */
static int close_segment(struct fold *f, size_t index, bool is_step, struct id_list *optimizers)
{
    const struct pending *p = &f->pending[index];
    if (!f->trains)
        start_training(f, p->tid);
    f->tid = p->tid;
    struct segment *s = &f->queue[f->queued];
    s->optimizers.count = 0;
    for (size_t i = 0; optimizers && i < optimizers->count; i++) {
        int result = fold_ids_add(&s->optimizers, optimizers->ids[i]);
        if (result < 0)
            return result;
    }
    s->from = f->segment_from;
    s->to = index + 1;
    s->end_ns = p->rec.t1_ns;
    s->tid = p->tid;
    s->is_step = is_step;
    f->explicit_steps |= is_step;
    fold_credit(f, s->to);
    fold_credit_end(f, !is_step || f->saw_optimizer);
    s->undecided = fold_undecided(f);
    s->credits = f->credits;
    f->queued++;
    f->segment_from = s->to;
    f->boundary_ns = s->end_ns;
    f->own_records = 0;
    f->nested.count = 0;
    finish_decided(f, false);
    return 0;
}

static int scan_optimizer(struct fold *f, size_t index)
{
    const struct pending *p = &f->pending[index];
    bool other_thread = f->trains && p->tid != f->tid;
    f->saw_optimizer = true;
    if (p->rec.flags & LEAT_REC_NESTED) {
        f->nested_ns = p->rec.t0_ns;
        return fold_ids_add(&f->nested, p->rec.id);
    }
    /* One that started before the last one ended is around it (a wrapper, GradScaler.step): the
     * same step seen from outside. */
    if (f->explicit_steps || (f->trains && !other_thread && p->rec.t0_ns < f->boundary_ns))
        return 0;
    /* Another thread becomes the training thread only when the one so far has fallen silent. */
    if (other_thread && f->own_records > 0)
        return 0;
    uint32_t id = p->rec.id;
    struct id_list one = {.ids = &id, .count = 1};
    return close_segment(f, index, false, &one);
}

/* The weights may be updated by hand: then each batch is a step, but not those that were asked for
 * without gradients and led to no backward. What went before the first backward was evaluation. */
static void note_backward(struct fold *f)
{
    if (!f->saw_backward && f->given > 0 && f->given == f->given_nograd) {
        if (f->sink.drop_steps)
            f->sink.drop_steps(f->sink.context);
        f->given = 0;
    }
    f->batch_backward = true;
}

static int scan_backward(struct fold *f, size_t index)
{
    const struct pending *p = &f->pending[index];
    if (!f->trains)
        note_backward(f);
    f->saw_backward = true;
    if (f->nested.count == 0 || f->explicit_steps || p->rec.t0_ns > f->nested_ns)
        return 0;
    return close_segment(f, index, false, &f->nested);
}

/* ---- inference ---------------------------------------------------------------------------- */

static void close_batch(struct fold *f, size_t to, uint64_t end_ns)
{
    struct gap_state gap = {0};
    struct tally tally = {.flags = STEP_INFERENCE, .segments = 1, .end_ns = end_ns};
    struct paint_job job = {.from = f->batch_from,
                            .to = to,
                            .tid = f->tid,
                            .t0_ns = f->batch_ns,
                            .t1_ns = end_ns > f->batch_ns ? end_ns : f->batch_ns,
                            .since_ns = f->batch_ns,
                            .all_train = true,
                            .provisional = true,
                            .step = f->given,
                            .gap = &gap};
    fold_paint(f, &job, &tally);
    f->batch_open = false;
    f->batch_from = to;
    f->last_tail_ns = end_ns > f->arrival_ns ? end_ns - f->arrival_ns : 0;
    if (f->saw_backward && f->batch_nograd && !f->batch_backward)
        return; /* an evaluation between steps */
    f->given_nograd += f->batch_nograd;
    fold_give(f, &tally);
}

static void scan_request(struct fold *f, size_t index)
{
    const struct pending *p = &f->pending[index];
    const struct rec *r = &p->rec;
    if (!f->has_tid) {
        f->tid = p->tid;
        f->has_tid = true;
    }
    if (p->tid != f->tid)
        return;
    /* A request that began before the batch in hand arrived is around its fetch (a loader in a
     * loader): the same batch. */
    if (f->batch_open && r->t0_ns < f->arrival_ns) {
        if (r->kind == LEAT_REC_FETCH && r->t1_ns > f->arrival_ns)
            f->arrival_ns = r->t1_ns;
        return;
    }
    if (f->batch_open)
        close_batch(f, index, r->t0_ns);
    if (r->kind == LEAT_REC_ITER) {
        if (!f->iter_seen || r->t0_ns < f->iter_ns)
            f->iter_ns = r->t0_ns;
        if (!f->iter_seen)
            f->batch_from = index;
        f->iter_seen = true;
    } else if (r->flags & LEAT_REC_END) {
        f->iter_seen = false;
    } else {
        f->batch_open = true;
        f->batch_nograd = (r->flags & LEAT_REC_NOGRAD) != 0;
        f->batch_backward = false;
        f->batch_ns = f->iter_seen ? f->iter_ns : r->t0_ns;
        if (!f->iter_seen)
            f->batch_from = index;
        f->arrival_ns = r->t1_ns;
        f->iter_seen = false;
    }
}

static void end_inference(struct fold *f, uint64_t end_ns)
{
    if (!f->batch_open)
        return;
    /* The loop was left, or the process died, in the middle of a batch. When it was left is not
     * known: the batch is taken to have lasted no longer after its arrival than the one before. */
    uint64_t last = f->arrival_ns;
    for (size_t i = f->batch_from; i < f->count; i++)
        if (f->pending[i].tid == f->tid && f->pending[i].rec.t1_ns > last)
            last = f->pending[i].rec.t1_ns;
    uint64_t usual = f->arrival_ns + f->last_tail_ns;
    if (usual > last)
        last = usual < end_ns || end_ns < last ? usual : end_ns;
    close_batch(f, f->count, last);
}

/* ---- feeding ------------------------------------------------------------------------------ */

static int by_end(const void *a, const void *b)
{
    const struct pending *x = a, *y = b;
    if (x->rec.t1_ns != y->rec.t1_ns)
        return x->rec.t1_ns < y->rec.t1_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Puts the new records, from `fresh` on, in their place among those not yet scanned. */
static void merge(struct fold *f, size_t fresh)
{
    uint64_t earliest = UINT64_MAX, before = fresh > f->scan ? f->pending[fresh - 1].rec.t1_ns : 0;
    bool sorted = true;
    for (size_t i = fresh; i < f->count; i++) {
        uint64_t t1 = f->pending[i].rec.t1_ns;
        sorted &= t1 >= before;
        before = t1;
        if (t1 < earliest)
            earliest = t1;
    }
    if (sorted)
        return;
    size_t low = f->scan, high = fresh;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->pending[middle].rec.t1_ns <= earliest)
            low = middle + 1;
        else
            high = middle;
    }
    qsort(f->pending + low, f->count - low, sizeof *f->pending, by_end);
}

static int scan(struct fold *f)
{
    int result = 0;
    while (result == 0 && f->scan < f->count) {
        size_t index = f->scan;
        const struct pending *p = &f->pending[index];
        if (f->many_tids && !f->ending && p->rec.t1_ns > f->complete_ns)
            break;
        f->scan++;
        f->own_records += p->tid == f->tid;
        switch (p->rec.kind) {
        case LEAT_REC_OPTIMIZER: result = scan_optimizer(f, index); break;
        case LEAT_REC_BACKWARD: result = scan_backward(f, index); break;
        case LEAT_REC_STEP: result = close_segment(f, index, true, NULL); break;
        case LEAT_REC_FETCH:
        case LEAT_REC_ITER:
            if (!f->trains)
                scan_request(f, index);
            break;
        default: break;
        }
    }
    return result;
}

/* Paints the older half of a segment that has grown too long, with what is known so far. */
static void cut_segment(struct fold *f)
{
    finish_decided(f, true);
    size_t live = f->scan - f->head;
    if (live <= FOLD_PENDING_MOST)
        return;
    size_t to = f->head + live / 2;
    if (!f->trains && f->batch_open && f->batch_from > f->head && f->batch_from < to)
        to = f->batch_from;
    uint64_t end = f->pending[to - 1].rec.t1_ns;
    for (size_t i = f->head; i < to; i++) /* the last thing the training thread said */
        if (f->pending[i].tid == f->tid)
            end = f->pending[i].rec.t1_ns;
    if (f->started && end < f->cut_ns)
        end = f->cut_ns;
    fold_credit(f, to);
    struct paint_job job = open_job(f, f->head, to, f->tid, end);
    struct tally part = {0};
    fold_paint(f, &job, &part);
    fold_tally_add(&f->partial, &part);
    if (!f->started && part.wall_ns > 0) {
        f->started = true;
        f->segment_ns = end - part.wall_ns;
    }
    f->cut_ns = end;
    f->head = f->segment_from = to;
    if (f->batch_from < to)
        f->batch_from = to;
}

/* Moves what is still needed to the front. */
static void compact(struct fold *f)
{
    size_t gone = f->head;
    if (gone == 0 || (f->count > 0 && gone < f->count / 2 && gone < FOLD_PENDING_MOST))
        return;
    memmove(f->pending, f->pending + gone, (f->count - gone) * sizeof *f->pending);
    f->count -= gone;
    f->scan -= gone;
    f->segment_from -= gone;
    f->credited -= gone < f->credited ? gone : f->credited;
    f->batch_from -= gone < f->batch_from ? gone : f->batch_from;
    for (size_t i = 0; i < f->queued; i++) {
        f->queue[i].from -= gone;
        f->queue[i].to -= gone;
    }
    f->head = 0;
}

static void take_record(struct fold *f, const struct ring_record *r)
{
    if (!f->any_tid) {
        f->any_tid = true;
        f->first_tid = f->tid = r->tid; /* until a fetch or an optimizer says better */
    }
    f->many_tids |= r->tid != f->first_tid;
    f->pending[f->count++] =
        (struct pending){.rec = r->rec, .order = ++f->orders, .tid = r->tid, .iteration = -1};
    if (r->rec.t1_ns > f->newest_ns)
        f->newest_ns = r->rec.t1_ns;
}

int fold_feed(struct fold *f, const struct ring_record *records, int count)
{
    size_t fresh = f->count;
    int result =
        mem_reserve(&f->pending, &f->pending_cap, f->count + (size_t)count, sizeof *f->pending);
    if (result < 0)
        return result;
    f->complete_ns = f->newest_ns;
    for (int i = 0; i < count; i++)
        if (records[i].rec.kind != LEAT_REC_MEMORY && records[i].rec.kind != LEAT_REC_WORKER_FETCH)
            take_record(f, &records[i]);
    merge(f, fresh);
    result = scan(f);
    while (f->scan - f->head > FOLD_PENDING_MOST)
        cut_segment(f);
    compact(f);
    return result;
}

/* What came after the last step is no step, but its evaluations and named spans are told; and of an
 * inference, what could not be told before it was sure to be one. */
static void tell_rest(struct fold *f)
{
    fold_credit(f, f->count);
    uint64_t last = f->cut_ns;
    for (size_t i = f->head; i < f->count; i++)
        if (f->pending[i].tid == f->tid && f->pending[i].rec.t1_ns > last)
            last = f->pending[i].rec.t1_ns;
    struct tally unused = {0};
    struct paint_job job = open_job(f, f->head, f->count, f->tid, last);
    job.find_start = false;
    job.t0_ns = job.t1_ns;
    job.all_train = !f->saw_optimizer && !(f->trains && f->saw_backward);
    fold_paint(f, &job, &unused);
    fold_eval_flush(f);
    f->head = f->scan = f->segment_from = f->count;
}

int fold_end(struct fold *f, uint64_t end_ns)
{
    f->ending = true;
    int result = scan(f);
    finish_decided(f, true);
    if (f->trains)
        fold_round_flush(f);
    else
        end_inference(f, end_ns);
    tell_rest(f);
    return result;
}
