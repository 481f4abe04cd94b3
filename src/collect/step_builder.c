/* step_builder.c: finds the segments of a training and the batches of an inference.
 *
 * Records of one thread come ordered by end time, those of several threads in any order. They are
 * merged by end time, and scanned only when no earlier record can still come: rings are drained one
 * after the other, so a record may come before another thread's that ended earlier. Each feed is a
 * whole drain; everything that ended before the newest record of the previous drain is complete. A
 * single thread has nothing to wait for.
 *
 * A segment ends where an optimizer has stepped, or the backward that optimizers stepped in, or at
 * leat.step(). Before the first of these the process may be an inference: each batch is emitted as
 * a step, and its records are kept. When an optimizer comes after all, the steps are dropped and
 * the records are counted again as what they were: an evaluation, or the micro-steps of the first
 * step.
 */
#include "collect/step_builder_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int step_builder_new(uint64_t start_ns, uint32_t signals, const struct step_sink *sink,
                     struct step_builder **ret_builder)
{
    struct step_builder *sb = mem_alloc(sizeof *sb);
    if (!sb)
        return -ENOMEM;
    sb->start_ns = start_ns;
    sb->signals = signals;
    sb->sink = *sink;
    sb->last_iteration = -1;
    *ret_builder = sb;
    return 0;
}

void step_builder_free(struct step_builder *sb)
{
    if (!sb)
        return;
    mem_free(sb->pending);
    mem_free(sb->nested.ids);
    mem_free(sb->doubt_ids.ids);
    for (size_t i = 0; i < MAX_QUEUED; i++)
        mem_free(sb->queue[i].optimizers.ids);
    phases_scratch_done(&sb->scratch);
    mem_free(sb);
}

int step_builder_name(struct step_builder *sb, uint32_t id, const char *name)
{
    if (id >= REC_NAMES)
        return -EINVAL;
    strncpy(sb->names[id], name, REC_NAME_BYTES - 1);
    sb->name_class[id] = NAME_USER;
    if (strcmp(name, "checkpoint") == 0)
        sb->name_class[id] = NAME_CHECKPOINT;
    else if (strcmp(name, "eval") == 0)
        sb->name_class[id] = NAME_EVAL;
    for (int i = 0; i < PHASES; i++) {
        if (strcmp(name, leat_phase_names[i]) != 0)
            continue;
        sb->name_class[id] = NAME_PHASE;
        sb->name_phase[id] = (uint8_t)i;
    }
    return 0;
}

void step_builder_signals(struct step_builder *sb, uint32_t signals)
{
    sb->signals |= signals;
}

int64_t step_builder_steps(const struct step_builder *sb)
{
    return sb->emitted;
}

/* A round that is as long as the last one is most likely complete, though not emitted yet. */
int64_t step_builder_step_at(const struct step_builder *sb)
{
    uint32_t usual = sb->last_round_segments ? sb->last_round_segments : 1;
    size_t segments = sb->round.segments + sb->doubt.segments + sb->queued;
    return sb->emitted + (int64_t)(segments / usual);
}

const struct loader_totals *step_builder_loader(const struct step_builder *sb, uint32_t id)
{
    return id < REC_LOADERS && sb->loader_used[id] ? &sb->loaders[id] : NULL;
}

/* ---- segments ----------------------------------------------------------------------------- */

static struct phase_job open_job(struct step_builder *sb, size_t from, size_t to, int32_t tid,
                                 uint64_t end)
{
    return (struct phase_job){.from = from,
                              .to = to,
                              .tid = tid,
                              .t0_ns = sb->started ? sb->cut_ns : end,
                              .t1_ns = end,
                              .since_ns = sb->started ? sb->segment_ns : 0,
                              .find_start = !sb->started,
                              .step = sb->emitted,
                              .gap = &sb->gap};
}

static void finish_segment(struct step_builder *sb)
{
    struct segment *s = &sb->queue[0];
    rounds_begin(sb, s);
    struct phase_job job = open_job(sb, s->from, s->to, s->tid, s->end_ns);
    struct tally tally = sb->partial;
    job.all_train = s->is_step && !sb->saw_backward && !sb->saw_optimizer;
    if (job.all_train)
        tally.flags |= STEP_INFERENCE;
    tally.segments = 1;
    tally.end_ns = s->end_ns;
    phases_add(sb, &job, &tally);
    phases_report_eval(sb);
    rounds_add(sb, s, &tally);
    sb->partial = (struct tally){0};
    sb->gap = (struct gap_state){0};
    sb->started = true;
    sb->segment_ns = sb->cut_ns = s->end_ns;
    sb->head = s->to;
    struct segment reuse = *s;
    memmove(&sb->queue[0], &sb->queue[1], (sb->queued - 1) * sizeof sb->queue[0]);
    sb->queue[--sb->queued] = reuse; /* keeps its list of ids for the next one */
}

static void finish_decided(struct step_builder *sb, bool all)
{
    while (sb->queued > 0) {
        const struct segment *s = &sb->queue[0];
        if (s->undecided && s->credits == sb->credits && !all && sb->queued < MAX_QUEUED)
            return;
        finish_segment(sb);
    }
}

static void start_training(struct step_builder *sb, int32_t tid)
{
    if (sb->emitted > 0 && sb->sink.drop_steps)
        sb->sink.drop_steps(sb->sink.context);
    sb->emitted = 0;
    sb->trains = true;
    sb->batch_open = false;
    sb->tid = tid;
    sb->has_tid = true;
}

/* Record `index` is the last of a segment. */
static int close_segment(struct step_builder *sb, size_t index, bool is_step,
                         struct id_list *optimizers)
{
    const struct pending *p = &sb->pending[index];
    if (!sb->trains)
        start_training(sb, p->tid);
    sb->tid = p->tid;
    struct segment *s = &sb->queue[sb->queued];
    s->optimizers.count = 0;
    for (size_t i = 0; optimizers && i < optimizers->count; i++) {
        int result = id_list_add(&s->optimizers, optimizers->ids[i]);
        if (result < 0)
            return result;
    }
    s->from = sb->segment_from;
    s->to = index + 1;
    s->end_ns = p->rec.t1_ns;
    s->tid = p->tid;
    s->is_step = is_step;
    sb->explicit_steps |= is_step;
    iterations_credit(sb, s->to);
    iterations_end_segment(sb, !is_step || sb->saw_optimizer);
    s->undecided = iterations_undecided(sb);
    s->credits = sb->credits;
    sb->queued++;
    sb->segment_from = s->to;
    sb->boundary_ns = s->end_ns;
    sb->own_records = 0;
    sb->nested.count = 0;
    finish_decided(sb, false);
    return 0;
}

static int scan_optimizer(struct step_builder *sb, size_t index)
{
    const struct pending *p = &sb->pending[index];
    bool other_thread = sb->trains && p->tid != sb->tid;
    sb->saw_optimizer = true;
    if (p->rec.flags & LEAT_REC_NESTED) {
        sb->nested_ns = p->rec.t0_ns;
        return id_list_add(&sb->nested, p->rec.id);
    }
    /* A record that started before the last one ended encloses it (a wrapper, GradScaler.step): the
     * same step. */
    if (sb->explicit_steps || (sb->trains && !other_thread && p->rec.t0_ns < sb->boundary_ns))
        return 0;
    /* Another thread becomes the training thread only when the current one records nothing. */
    if (other_thread && sb->own_records > 0)
        return 0;
    uint32_t id = p->rec.id;
    struct id_list one = {.ids = &id, .count = 1};
    return close_segment(sb, index, false, &one);
}

/* The weights may be updated by hand: then each batch is a step, except batches that were requested
 * without gradients and led to no backward. Batches before the first backward were evaluation. */
static void note_backward(struct step_builder *sb)
{
    if (!sb->saw_backward && sb->emitted > 0 && sb->emitted == sb->emitted_nograd) {
        if (sb->sink.drop_steps)
            sb->sink.drop_steps(sb->sink.context);
        sb->emitted = 0;
    }
    sb->batch_backward = true;
}

static int scan_backward(struct step_builder *sb, size_t index)
{
    const struct pending *p = &sb->pending[index];
    if (!sb->trains)
        note_backward(sb);
    sb->saw_backward = true;
    if (sb->nested.count == 0 || sb->explicit_steps || p->rec.t0_ns > sb->nested_ns)
        return 0;
    return close_segment(sb, index, false, &sb->nested);
}

/* ---- inference ---------------------------------------------------------------------------- */

static void close_batch(struct step_builder *sb, size_t to, uint64_t end_ns)
{
    struct gap_state gap = {0};
    struct tally tally = {.flags = STEP_INFERENCE, .segments = 1, .end_ns = end_ns};
    struct phase_job job = {.from = sb->batch_from,
                            .to = to,
                            .tid = sb->tid,
                            .t0_ns = sb->batch_ns,
                            .t1_ns = end_ns > sb->batch_ns ? end_ns : sb->batch_ns,
                            .since_ns = sb->batch_ns,
                            .all_train = true,
                            .provisional = true,
                            .step = sb->emitted,
                            .gap = &gap};
    phases_add(sb, &job, &tally);
    sb->batch_open = false;
    sb->batch_from = to;
    sb->last_tail_ns = end_ns > sb->arrival_ns ? end_ns - sb->arrival_ns : 0;
    if (sb->saw_backward && sb->batch_nograd && !sb->batch_backward)
        return; /* an evaluation between steps */
    sb->emitted_nograd += sb->batch_nograd;
    step_emit(sb, &tally);
}

static void scan_request(struct step_builder *sb, size_t index)
{
    const struct pending *p = &sb->pending[index];
    const struct rec *r = &p->rec;
    if (!sb->has_tid) {
        sb->tid = p->tid;
        sb->has_tid = true;
    }
    if (p->tid != sb->tid)
        return;
    /* A request that began before the current batch arrived encloses its fetch (a loader within a
     * loader): the same batch. */
    if (sb->batch_open && r->t0_ns < sb->arrival_ns) {
        if (r->kind == LEAT_REC_FETCH && r->t1_ns > sb->arrival_ns)
            sb->arrival_ns = r->t1_ns;
        return;
    }
    if (sb->batch_open)
        close_batch(sb, index, r->t0_ns);
    if (r->kind == LEAT_REC_ITER) {
        if (!sb->iter_seen || r->t0_ns < sb->iter_ns)
            sb->iter_ns = r->t0_ns;
        if (!sb->iter_seen)
            sb->batch_from = index;
        sb->iter_seen = true;
    } else if (r->flags & LEAT_REC_END) {
        sb->iter_seen = false;
    } else {
        sb->batch_open = true;
        sb->batch_nograd = (r->flags & LEAT_REC_NOGRAD) != 0;
        sb->batch_backward = false;
        sb->batch_ns = sb->iter_seen ? sb->iter_ns : r->t0_ns;
        if (!sb->iter_seen)
            sb->batch_from = index;
        sb->arrival_ns = r->t1_ns;
        sb->iter_seen = false;
    }
}

static void end_inference(struct step_builder *sb, uint64_t end_ns)
{
    if (!sb->batch_open)
        return;
    /* The loop ended, or the process was killed, within a batch; when is not known. The batch is
     * assumed to have lasted after its arrival as long as the one before. */
    uint64_t last = sb->arrival_ns;
    for (size_t i = sb->batch_from; i < sb->count; i++)
        if (sb->pending[i].tid == sb->tid && sb->pending[i].rec.t1_ns > last)
            last = sb->pending[i].rec.t1_ns;
    uint64_t usual = sb->arrival_ns + sb->last_tail_ns;
    if (usual > last)
        last = usual < end_ns || end_ns < last ? usual : end_ns;
    close_batch(sb, sb->count, last);
}

/* ---- feeding ------------------------------------------------------------------------------ */

static int by_end(const void *a, const void *b)
{
    const struct pending *x = a, *y = b;
    if (x->rec.t1_ns != y->rec.t1_ns)
        return x->rec.t1_ns < y->rec.t1_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Sorts the new records, from `fresh` on, among those not yet scanned. */
static void merge(struct step_builder *sb, size_t fresh)
{
    uint64_t earliest = UINT64_MAX,
             before = fresh > sb->scan ? sb->pending[fresh - 1].rec.t1_ns : 0;
    bool sorted = true;
    for (size_t i = fresh; i < sb->count; i++) {
        uint64_t t1 = sb->pending[i].rec.t1_ns;
        sorted &= t1 >= before;
        before = t1;
        if (t1 < earliest)
            earliest = t1;
    }
    if (sorted)
        return;
    size_t low = sb->scan, high = fresh;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sb->pending[middle].rec.t1_ns <= earliest)
            low = middle + 1;
        else
            high = middle;
    }
    qsort(sb->pending + low, sb->count - low, sizeof *sb->pending, by_end);
}

static int scan(struct step_builder *sb)
{
    int result = 0;
    while (result == 0 && sb->scan < sb->count) {
        size_t index = sb->scan;
        const struct pending *p = &sb->pending[index];
        if (sb->many_tids && !sb->ending && p->rec.t1_ns > sb->complete_ns)
            break;
        sb->scan++;
        sb->own_records += p->tid == sb->tid;
        switch (p->rec.kind) {
        case LEAT_REC_OPTIMIZER: result = scan_optimizer(sb, index); break;
        case LEAT_REC_BACKWARD: result = scan_backward(sb, index); break;
        case LEAT_REC_STEP: result = close_segment(sb, index, true, NULL); break;
        case LEAT_REC_FETCH:
        case LEAT_REC_ITER:
            if (!sb->trains)
                scan_request(sb, index);
            break;
        default: break;
        }
    }
    return result;
}

/* Adds up the phases of the older half of a segment that has grown too long, with what is known so
 * far. */
static void cut_segment(struct step_builder *sb)
{
    finish_decided(sb, true);
    size_t needed = sb->scan - sb->head;
    if (needed <= MAX_PENDING)
        return;
    size_t to = sb->head + needed / 2;
    if (!sb->trains && sb->batch_open && sb->batch_from > sb->head && sb->batch_from < to)
        to = sb->batch_from;
    uint64_t end = sb->pending[to - 1].rec.t1_ns;
    for (size_t i = sb->head; i < to; i++) /* the last record of the training thread */
        if (sb->pending[i].tid == sb->tid)
            end = sb->pending[i].rec.t1_ns;
    if (sb->started && end < sb->cut_ns)
        end = sb->cut_ns;
    iterations_credit(sb, to);
    struct phase_job job = open_job(sb, sb->head, to, sb->tid, end);
    struct tally part = {0};
    phases_add(sb, &job, &part);
    tally_add(&sb->partial, &part);
    if (!sb->started && part.wall_ns > 0) {
        sb->started = true;
        sb->segment_ns = end - part.wall_ns;
    }
    sb->cut_ns = end;
    sb->head = sb->segment_from = to;
    if (sb->batch_from < to)
        sb->batch_from = to;
}

/* Moves what is still needed to the front. */
static void compact(struct step_builder *sb)
{
    size_t gone = sb->head;
    if (gone == 0 || (sb->count > 0 && gone < sb->count / 2 && gone < MAX_PENDING))
        return;
    memmove(sb->pending, sb->pending + gone, (sb->count - gone) * sizeof *sb->pending);
    sb->count -= gone;
    sb->scan -= gone;
    sb->segment_from -= gone;
    sb->credited -= gone < sb->credited ? gone : sb->credited;
    sb->batch_from -= gone < sb->batch_from ? gone : sb->batch_from;
    for (size_t i = 0; i < sb->queued; i++) {
        sb->queue[i].from -= gone;
        sb->queue[i].to -= gone;
    }
    sb->head = 0;
}

static void take_record(struct step_builder *sb, const struct ring_record *r)
{
    if (!sb->any_tid) {
        sb->any_tid = true;
        sb->first_tid = sb->tid = r->tid; /* until a fetch or an optimizer is recorded */
    }
    sb->many_tids |= r->tid != sb->first_tid;
    sb->pending[sb->count++] =
        (struct pending){.rec = r->rec, .order = ++sb->orders, .tid = r->tid, .iteration = -1};
    if (r->rec.t1_ns > sb->newest_ns)
        sb->newest_ns = r->rec.t1_ns;
}

int step_builder_feed(struct step_builder *sb, const struct ring_record *records, int count)
{
    size_t fresh = sb->count;
    int result =
        mem_reserve(&sb->pending, &sb->pending_cap, sb->count + (size_t)count, sizeof *sb->pending);
    if (result < 0)
        return result;
    sb->complete_ns = sb->newest_ns;
    for (int i = 0; i < count; i++)
        if (records[i].rec.kind != LEAT_REC_MEMORY && records[i].rec.kind != LEAT_REC_WORKER_FETCH)
            take_record(sb, &records[i]);
    merge(sb, fresh);
    result = scan(sb);
    while (sb->scan - sb->head > MAX_PENDING)
        cut_segment(sb);
    compact(sb);
    return result;
}

/* What came after the last step is no step, but its evaluations and named spans are reported. So is
 * what could not be reported before the process was known to be an inference. */
static void report_rest(struct step_builder *sb)
{
    iterations_credit(sb, sb->count);
    uint64_t last = sb->cut_ns;
    for (size_t i = sb->head; i < sb->count; i++)
        if (sb->pending[i].tid == sb->tid && sb->pending[i].rec.t1_ns > last)
            last = sb->pending[i].rec.t1_ns;
    struct tally unused = {0};
    struct phase_job job = open_job(sb, sb->head, sb->count, sb->tid, last);
    job.find_start = false;
    job.t0_ns = job.t1_ns;
    job.all_train = !sb->saw_optimizer && !(sb->trains && sb->saw_backward);
    phases_add(sb, &job, &unused);
    phases_report_eval(sb);
    sb->head = sb->scan = sb->segment_from = sb->count;
}

int step_builder_end(struct step_builder *sb, uint64_t end_ns)
{
    sb->ending = true;
    int result = scan(sb);
    finish_decided(sb, true);
    if (sb->trains)
        rounds_flush(sb);
    else
        end_inference(sb, end_ns);
    report_rest(sb);
    return result;
}
