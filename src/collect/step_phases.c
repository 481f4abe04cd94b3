/* step_phases.c: one segment of the training thread -> nanoseconds per phase.
 *
 * The spans of the thread are sorted by start and swept with a stack, so that every nanosecond of
 * the segment falls to exactly one of: a phase, or an evaluation, which belongs to no step. The sum
 * of the phases therefore equals the wall time by construction, whatever was recorded.
 *
 *     spans      [ FETCH ]        [  BACKWARD        ]     [OPTIMIZER]
 *                                     [ SYNC ]
 *     phase      input   |forward |bw |sync  |backward|other|optimizer
 *
 * Inside a fetch all is input; else inside a synchronisation all is sync; else inside a transfer
 * all is h2d; else the innermost span decides. Compilations and waits have no phase of their own.
 *
 * What lies between spans, a gap, is `forward` once a batch has arrived, and `other` after a
 * backward or an optimizer, until the next batch. When a backward starts without a new batch (a
 * loop without a loader, two steps per batch), the gaps before it were the forward. In a loop
 * without any optimizer, what follows a backward is the update of the weights by hand, and counts
 * as optimizer.
 *
 * A wait of the training thread counts as input while another thread of this process is fetching: a
 * prefetching thread that is too slow. A fetch that ends after the wait is not what was waited for.
 */
#include "collect/step_builder_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    KIND_BACKGROUND = LEAT_REC_KINDS, /* a piece of a WAIT in which a fetch was awaited */
    PHASE_GAP = PHASES,
    PHASE_KEEP /* as the span around it */
};

struct span {
    uint64_t a, b;
    uint32_t record; /* in pending */
    int16_t iteration;
    uint16_t kind, flags;
    uint8_t phase;    /* its phase, or PHASE_KEEP */
    bool eval, named; /* a fetch of an evaluation; `other` in it belongs to a name */
    uint64_t other_ns;
};

struct piece {
    uint64_t a, b;
    uint32_t record;
    int16_t iteration;
};

struct turn { /* from t on, gaps are of this phase */
    uint64_t t;
    uint8_t phase;
};

struct frame {
    uint64_t b;
    uint8_t phase, lock; /* lock: 3 input, 2 sync, 1 h2d: what is inside cannot change it */
    struct span *name;   /* gets the time that counts as `other`; NULL: none */
};

struct phase_pass {
    struct step_builder *sb;
    const struct phase_job *job;
    struct tally *tally;
    struct span *spans;
    struct piece *background, *evals;
    struct turn *turns;
    struct frame *frames;
    size_t span_count, background_count, eval_count, turn_count, depth;
    size_t at_eval, at_turn;
    uint64_t t0, t1, cursor;
};

void phases_scratch_done(struct phases_scratch *scratch)
{
    mem_free(scratch->spans);
    mem_free(scratch->background);
    mem_free(scratch->evals);
    mem_free(scratch->turns);
    mem_free(scratch->frames);
}

/* A record gives at most one span and one piece of each kind; a wait and the fetches it overlaps
 * give at most as many pieces as there are of both. */
static bool reserve(struct phase_pass *p, struct phases_scratch *s, size_t records)
{
    if (mem_reserve(&s->spans, &s->spans_cap, 2 * records + 8, sizeof *p->spans) < 0 ||
        mem_reserve(&s->background, &s->background_cap, records + 8, sizeof *p->background) < 0 ||
        mem_reserve(&s->evals, &s->evals_cap, 2 * records + 8, sizeof *p->evals) < 0 ||
        mem_reserve(&s->turns, &s->turns_cap, 2 * records + 8, sizeof *p->turns) < 0 ||
        mem_reserve(&s->frames, &s->frames_cap, 2 * records + 8, sizeof *p->frames) < 0)
        return false;
    p->spans = s->spans;
    p->background = s->background;
    p->evals = s->evals;
    p->turns = s->turns;
    p->frames = s->frames;
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static enum name_class name_class(const struct step_builder *sb, const struct rec *r)
{
    if (r->kind != LEAT_REC_NAMED)
        return NAME_NONE;
    return r->id < REC_NAMES && sb->name_class[r->id] ? sb->name_class[r->id] : NAME_USER;
}

static bool is_fetch(const struct span *s)
{
    return s->kind == LEAT_REC_FETCH || s->kind == LEAT_REC_ITER || s->kind == KIND_BACKGROUND;
}

static bool is_named_phase(const struct span *s, int phase)
{
    return s->kind == LEAT_REC_NAMED && !s->named && s->phase == phase;
}

static bool is_backward(const struct span *s)
{
    return s->kind == LEAT_REC_BACKWARD || is_named_phase(s, PHASE_BACKWARD);
}

/* ---- gathering ---------------------------------------------------------------------------- */

static uint8_t phase_of(const struct phase_pass *p, const struct rec *r, enum name_class name)
{
    switch (r->kind) {
    case LEAT_REC_FETCH:
    case LEAT_REC_ITER: return PHASE_INPUT;
    case LEAT_REC_H2D: return PHASE_H2D;
    case LEAT_REC_BACKWARD: return PHASE_BACKWARD;
    case LEAT_REC_OPTIMIZER: return PHASE_OPTIMIZER;
    case LEAT_REC_CLOSURE: return PHASE_FORWARD;
    case LEAT_REC_SYNC: return PHASE_SYNC;
    case LEAT_REC_NAMED:
        if (name == NAME_EVAL)
            return PHASE_KEEP;
        return name == NAME_PHASE ? p->sb->name_phase[r->id] : PHASE_OTHER;
    default: return PHASE_KEEP;
    }
}

/* A span of this name or kind shows that the process has the signal. */
static void note_signal(struct step_builder *sb, uint8_t phase)
{
    if (phase == PHASE_H2D)
        sb->signals |= LEAT_SIGNAL_H2D;
    else if (phase == PHASE_SYNC)
        sb->signals |= LEAT_SIGNAL_SYNC;
}

static void gather_own(struct phase_pass *p, uint32_t index)
{
    const struct pending *q = &p->sb->pending[index];
    const struct rec *r = &q->rec;
    enum name_class name = name_class(p->sb, r);
    if (r->kind == LEAT_REC_STEP || r->kind >= LEAT_REC_KINDS)
        return;
    bool trains = p->job->all_train || iteration_trains(p->sb, q->iteration);
    struct span *s = &p->spans[p->span_count++];
    *s = (struct span){.a = r->t0_ns,
                       .b = r->t1_ns,
                       .record = index,
                       .iteration = q->iteration,
                       .kind = r->kind,
                       .flags = r->flags,
                       .phase = phase_of(p, r, name),
                       .named = name == NAME_USER || name == NAME_CHECKPOINT};
    note_signal(p->sb, s->phase);
    if (is_fetch(s) && !trains) {
        s->eval = true;
        s->phase = PHASE_KEEP;
    }
    /* A phase that began before the segment encloses steps. */
    if (r->kind == LEAT_REC_NAMED && r->t0_ns < p->job->since_ns)
        s->phase = PHASE_KEEP;
}

static void gather(struct phase_pass *p)
{
    for (size_t i = p->job->from; i < p->job->to; i++) {
        const struct pending *q = &p->sb->pending[i];
        if (q->tid == p->job->tid)
            gather_own(p, (uint32_t)i);
        else if (q->rec.kind == LEAT_REC_FETCH || q->rec.kind == LEAT_REC_ITER)
            p->background[p->background_count++] =
                (struct piece){q->rec.t0_ns, q->rec.t1_ns, (uint32_t)i, q->iteration};
    }
}

static int by_piece_start(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->a < y->a ? -1 : x->a > y->a;
}

static int by_span_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    if (x->b != y->b)
        return x->b > y->b ? -1 : 1;
    if ((x->kind == KIND_BACKGROUND) != (y->kind == KIND_BACKGROUND))
        return x->kind == KIND_BACKGROUND ? 1 : -1;
    return x->record > y->record ? -1 : x->record < y->record; /* the outer one is recorded later */
}

static void add_awaited(struct phase_pass *p, const struct span *wait, const struct piece *fetch)
{
    uint64_t a = most(fetch->a, wait->a), b = least(fetch->b, wait->b);
    bool trains = p->job->all_train || iteration_trains(p->sb, fetch->iteration);
    if (a < b)
        p->spans[p->span_count++] = (struct span){.a = a,
                                                  .b = b,
                                                  .record = fetch->record,
                                                  .iteration = fetch->iteration,
                                                  .kind = KIND_BACKGROUND,
                                                  .phase = trains ? PHASE_INPUT : PHASE_KEEP,
                                                  .eval = !trains};
}

/* Pieces of waits in which another thread was fetching become spans of their own. */
static void match_waits(struct phase_pass *p)
{
    if (p->background_count == 0)
        return;
    qsort(p->background, p->background_count, sizeof *p->background, by_piece_start);
    uint64_t covered = 0; /* several threads may fetch at once: each moment is counted once */
    for (size_t i = 0; i < p->background_count; i++) {
        p->background[i].a = most(p->background[i].a, covered);
        p->background[i].b = most(p->background[i].b, p->background[i].a);
        covered = p->background[i].b;
    }
    qsort(p->spans, p->span_count, sizeof *p->spans, by_span_start);
    size_t waits = p->span_count, first = 0;
    uint64_t done = 0; /* a wait inside a wait is covered by the outer one */
    for (size_t i = 0; i < waits; i++) {
        const struct span *w = &p->spans[i];
        if (w->kind != LEAT_REC_WAIT || w->a < done)
            continue;
        done = w->b;
        while (first < p->background_count && p->background[first].b <= w->a)
            first++;
        for (size_t k = first; k < p->background_count && p->background[k].a < w->b; k++)
            add_awaited(p, w, &p->background[k]);
    }
}

/* ---- evaluations -------------------------------------------------------------------------- */

struct eval_run {
    bool open, ended;       /* ended: its last fetch was END */
    int root;               /* the iteration */
    uint64_t a, last, soft; /* start; end of its last event; first named span after that, or 0 */
};

static void close_run(struct phase_pass *p, struct eval_run *run, uint64_t at)
{
    uint64_t b = run->ended ? run->last : run->soft ? run->soft : most(at, run->last);
    p->evals[p->eval_count++] = (struct piece){.a = run->a, .b = b};
    run->open = false;
}

static void extend_run(struct phase_pass *p, struct eval_run *run, const struct span *s)
{
    int root = s->iteration >= 0 ? iteration_root(p->sb, s->iteration) : -1;
    if (run->open && s->a >= run->last && root != run->root && (run->ended || run->soft))
        close_run(p, run, s->a);
    if (!run->open)
        *run = (struct eval_run){.open = true, .a = s->a};
    bool inside =
        s->b <= run->last; /* a fetch within a fetch does not show how the outer one ends */
    run->last = most(run->last, s->b);
    run->soft = 0;
    if (!inside) {
        run->root = root;
        /* Of a background thread's evaluation only the waits are seen: it ends with the last. */
        run->ended =
            s->kind == KIND_BACKGROUND || (s->kind == LEAT_REC_FETCH && (s->flags & LEAT_REC_END));
    }
}

/* An evaluation lasts from the first event of an iteration that does not train to its END. One that
 * was left early lasts to the next event of another kind; if that is a backward, the forward before
 * it lies in between, and the evaluation ended with its last fetch. */
static void find_evals(struct phase_pass *p)
{
    struct eval_run run = {0};
    bool backward_seen = false;
    if (p->job->gap->evaluates)
        run =
            (struct eval_run){.open = true, .root = -1, .a = p->sb->cut_ns, .last = p->sb->cut_ns};
    for (size_t i = 0; i < p->span_count && !p->job->all_train; i++) {
        const struct span *s = &p->spans[i];
        const struct rec *r = &p->sb->pending[s->record].rec;
        if (is_fetch(s) && s->eval)
            extend_run(p, &run, s);
        else if (run.open && s->a >= run.last) {
            bool optimizer = s->kind == LEAT_REC_OPTIMIZER;
            if (is_backward(s) || (optimizer && !backward_seen))
                close_run(p, &run, run.last);
            else if (is_fetch(s) || optimizer)
                close_run(p, &run, s->a);
            else if (s->kind == LEAT_REC_NAMED && !run.soft)
                run.soft = s->a;
        }
        backward_seen |= is_backward(s);
        if (s->kind == LEAT_REC_NAMED && name_class(p->sb, r) == NAME_EVAL &&
            s->a >= p->job->since_ns)
            p->evals[p->eval_count++] = (struct piece){.a = s->a, .b = s->b};
    }
    p->job->gap->evaluates = run.open && !run.ended && !run.soft;
    if (run.open)
        close_run(p, &run, p->t1);
}

static void hold_eval(struct step_builder *sb, uint64_t a, uint64_t b)
{
    if (sb->eval_held && sb->eval_to_ns >= a && sb->eval_from_ns <= a) {
        sb->eval_to_ns = most(sb->eval_to_ns, b);
        return;
    }
    if (sb->eval_held && !sb->trains) {
        /* It may all have been inference: nothing can be reported yet, and one span is kept. */
        sb->eval_to_ns = most(sb->eval_to_ns, b);
        return;
    }
    phases_report_eval(sb);
    sb->eval_held = true;
    sb->eval_from_ns = a;
    sb->eval_to_ns = b;
}

void phases_report_eval(struct step_builder *sb)
{
    if (!sb->eval_held || !sb->trains)
        return;
    sb->eval_held = false;
    if (sb->sink.span)
        sb->sink.span(sb->sink.context, "eval", sb->emitted, step_relative_ns(sb, sb->eval_from_ns),
                      step_relative_ns(sb, sb->eval_to_ns), 0);
}

/* Sorts the evaluations, merges adjacent ones, reports them. */
static void settle_evals(struct phase_pass *p)
{
    qsort(p->evals, p->eval_count, sizeof *p->evals, by_piece_start);
    size_t kept = 0;
    for (size_t i = 0; i < p->eval_count; i++) {
        struct piece e = p->evals[i];
        e.b = least(e.b, p->t1);
        if (e.a >= e.b)
            continue;
        if (kept > 0 && e.a <= p->evals[kept - 1].b)
            p->evals[kept - 1].b = most(p->evals[kept - 1].b, e.b);
        else
            p->evals[kept++] = e;
    }
    p->eval_count = kept;
    for (size_t i = 0; i < kept; i++)
        hold_eval(p->sb, p->evals[i].a, p->evals[i].b);
    if (kept > 0)
        p->tally->flags |= STEP_AFTER_EVAL;
}

/* ---- gaps, batches and flags -------------------------------------------------------------- */

/* Added also when the phase does not change: a later backward may change what comes after it, and
 * only that. */
static void add_turn(struct phase_pass *p, uint64_t t, uint8_t phase)
{
    t = most(t, p->turns[p->turn_count - 1].t);
    p->turns[p->turn_count++] = (struct turn){t, phase};
}

static void count_batch(struct tally *tally, uint32_t samples)
{
    tally->micro_steps++;
    tally->samples += samples;
    tally->samples_unknown |= samples == 0;
}

struct gap_walk {
    size_t since_backward; /* the turn in force since the last backward */
    uint64_t fetch_end, optimizer_end, backward_end;
    bool arrived, owed; /* owed: the enclosing fetch did not know its samples */
};

static void walk_fetch(struct phase_pass *p, struct gap_walk *w, const struct span *s)
{
    uint32_t samples = (uint32_t)p->sb->pending[s->record].rec.arg;
    bool batch = s->kind == LEAT_REC_FETCH && !(s->flags & LEAT_REC_END);
    if (s->a < w->fetch_end) { /* inside another fetch: only its samples are new */
        if (batch && w->owed && samples > 0) {
            p->tally->samples += samples;
            w->owed = false;
        }
        return;
    }
    p->tally->samples_unknown |= w->owed;
    w->owed = false;
    w->fetch_end = s->b;
    if (s->eval)
        return;
    if (s->kind == LEAT_REC_ITER)
        p->tally->flags |= STEP_EPOCH_START;
    if (batch) {
        p->tally->micro_steps++;
        p->tally->samples += samples;
        w->owed = samples == 0;
    }
    if ((batch || s->kind == KIND_BACKGROUND) && s->a >= w->backward_end &&
        s->a >= w->optimizer_end) {
        add_turn(p, s->b, PHASE_FORWARD);
        w->arrived = true;
    }
}

static void walk_backward(struct phase_pass *p, struct gap_walk *w, const struct span *s)
{
    if (s->a < w->optimizer_end || s->a < w->backward_end)
        return; /* of a closure, or inside another */
    if (!w->arrived)
        for (size_t i = w->since_backward; i < p->turn_count; i++)
            p->turns[i].phase = PHASE_FORWARD;
    w->backward_end = s->b;
    w->arrived = false;
    add_turn(p, s->b, p->sb->saw_optimizer ? PHASE_OTHER : PHASE_OPTIMIZER);
    w->since_backward = p->turn_count - 1;
}

/* One walk over the spans in order finds what gaps are and counts batches. */
static void walk_gaps(struct phase_pass *p)
{
    struct gap_state *gap = p->job->gap;
    struct gap_walk w = {.arrived = gap->arrived};
    p->turns[p->turn_count++] = (struct turn){0, gap->forward ? PHASE_FORWARD : PHASE_OTHER};
    for (size_t i = 0; i < p->span_count; i++) {
        const struct span *s = &p->spans[i];
        if (is_fetch(s)) {
            walk_fetch(p, &w, s);
        } else if (s->a < w.fetch_end) {
            continue;
        } else if (is_backward(s)) {
            walk_backward(p, &w, s);
        } else if (is_named_phase(s, PHASE_INPUT)) {
            add_turn(p, s->b, PHASE_FORWARD);
            w.arrived = true;
        } else if (s->kind == LEAT_REC_OPTIMIZER && s->a >= w.optimizer_end &&
                   s->a >= w.backward_end) {
            w.optimizer_end = s->b;
            w.arrived = false;
            add_turn(p, s->b, PHASE_OTHER);
            w.since_backward = p->turn_count - 1;
        }
    }
    p->tally->samples_unknown |= w.owed;
    gap->forward = p->turns[p->turn_count - 1].phase == PHASE_FORWARD;
    gap->arrived = w.arrived;
}

/* What concerns the records of all threads. */
static void count_records(struct phase_pass *p)
{
    struct step_builder *sb = p->sb;
    for (size_t i = p->job->from; i < p->job->to; i++) {
        const struct pending *q = &sb->pending[i];
        bool own = q->tid == p->job->tid;
        bool trains = p->job->all_train || iteration_trains(sb, q->iteration);
        p->tally->records++;
        if (q->rec.flags & LEAT_REC_ERROR)
            p->tally->flags |= STEP_EXCEPTION;
        switch (q->rec.kind) {
        case LEAT_REC_COMPILE: p->tally->flags |= STEP_COMPILE; break;
        case LEAT_REC_NAMED:
            if (name_class(sb, &q->rec) == NAME_CHECKPOINT)
                p->tally->flags |= STEP_CHECKPOINT;
            break;
        case LEAT_REC_ITER:
        case LEAT_REC_FETCH:
            if (q->iteration >= 0 && !p->job->all_train)
                iteration_judge(sb, q->iteration, trains);
            if (own || !trains)
                break;
            if (q->rec.kind == LEAT_REC_ITER)
                p->tally->flags |= STEP_EPOCH_START;
            else if (!(q->rec.flags & LEAT_REC_END))
                count_batch(p->tally, (uint32_t)q->rec.arg);
            break;
        default: break;
        }
    }
}

/* ---- the sweep ---------------------------------------------------------------------------- */

static void add_time(struct phase_pass *p, uint64_t a, uint64_t b, const struct frame *top)
{
    while (a < b) {
        while (p->at_eval < p->eval_count && p->evals[p->at_eval].b <= a)
            p->at_eval++;
        const struct piece *e = p->at_eval < p->eval_count ? &p->evals[p->at_eval] : NULL;
        if (e && e->a <= a) {
            a = least(b, e->b);
            continue;
        }
        uint64_t stop = e ? least(b, e->a) : b;
        uint8_t phase = top ? top->phase : PHASE_GAP;
        if (phase == PHASE_GAP) {
            while (p->at_turn + 1 < p->turn_count && p->turns[p->at_turn + 1].t <= a)
                p->at_turn++;
            if (p->at_turn + 1 < p->turn_count)
                stop = least(stop, p->turns[p->at_turn + 1].t);
            phase = p->turns[p->at_turn].phase;
        }
        p->tally->phase_ns[phase] += stop - a;
        p->tally->wall_ns += stop - a;
        if (phase == PHASE_OTHER && top && top->name)
            top->name->other_ns += stop - a;
        a = stop;
    }
}

static void sweep_until(struct phase_pass *p, uint64_t to)
{
    while (p->cursor < to) {
        while (p->depth > 0 && p->frames[p->depth - 1].b <= p->cursor)
            p->depth--;
        const struct frame *top = p->depth > 0 ? &p->frames[p->depth - 1] : NULL;
        uint64_t stop = top ? least(top->b, to) : to;
        add_time(p, p->cursor, stop, top);
        p->cursor = stop;
    }
    while (p->depth > 0 && p->frames[p->depth - 1].b <= p->cursor)
        p->depth--;
}

/* Which spans decide for the spans inside them: everything in a fetch is input, and so on. */
static uint8_t lock_of(const struct span *s)
{
    switch (s->kind) {
    case LEAT_REC_FETCH:
    case LEAT_REC_ITER:
    case KIND_BACKGROUND: return 3;
    case LEAT_REC_SYNC: return 2;
    case LEAT_REC_H2D: return 1;
    default: return 0;
    }
}

static void push(struct phase_pass *p, struct span *s)
{
    struct frame frame = {.b = UINT64_MAX, .phase = PHASE_GAP};
    if (p->depth > 0)
        frame = p->frames[p->depth - 1];
    /* The spans of one thread are nested; garbage is cut to be. */
    frame.b = least(s->b, frame.b);
    uint8_t lock = lock_of(s);
    bool wins = s->phase != PHASE_KEEP && (frame.lock == 0 || lock > frame.lock);
    /* A wait inside a backward or an optimizer does not belong to the loader. */
    if (s->kind == KIND_BACKGROUND &&
        (frame.phase == PHASE_BACKWARD || frame.phase == PHASE_OPTIMIZER || frame.lock > 0))
        wins = false;
    if (wins) {
        frame.phase = s->phase;
        frame.lock = lock;
        frame.name = s->named ? s : NULL;
    }
    p->frames[p->depth++] = frame;
}

static void sweep(struct phase_pass *p)
{
    p->cursor = p->t0;
    for (size_t i = 0; i < p->span_count; i++) {
        struct span *s = &p->spans[i];
        if (s->b <= p->t0 || s->a >= p->t1)
            continue;
        sweep_until(p, s->a);
        push(p, s);
    }
    sweep_until(p, p->t1);
}

/* ---- reporting ---------------------------------------------------------------------------- */

static void report_span(struct phase_pass *p, const struct span *s, const char *name, uint64_t end)
{
    struct step_builder *sb = p->sb;
    sb->pending[s->record].reported = true;
    if (sb->sink.span)
        sb->sink.span(sb->sink.context, name, p->job->step, step_relative_ns(sb, s->a),
                      step_relative_ns(sb, end), s->other_ns);
}

static const char *name_text(const struct step_builder *sb, uint32_t id)
{
    return id < REC_NAMES && sb->names[id][0] ? sb->names[id] : "unnamed";
}

/* The start of an epoch lasts from the making of the iterator to the arrival of its first batch. */
static uint64_t first_batch_end(const struct phase_pass *p, size_t i)
{
    for (size_t k = i + 1; k < p->span_count; k++) {
        const struct span *s = &p->spans[k];
        if (s->kind == LEAT_REC_FETCH && s->iteration == p->spans[i].iteration)
            return s->b;
        if (is_backward(s) || s->kind == LEAT_REC_OPTIMIZER)
            break;
    }
    return p->spans[i].b;
}

static void report_spans(struct phase_pass *p)
{
    uint64_t sync_end = 0, iter_end = 0;
    for (size_t i = 0; i < p->span_count; i++) {
        const struct span *s = &p->spans[i];
        const struct pending *q = &p->sb->pending[s->record];
        if (q->reported)
            continue;
        if (s->kind == LEAT_REC_NAMED && s->named) {
            report_span(p, s, name_text(p->sb, q->rec.id), s->b);
        } else if (s->kind == LEAT_REC_COMPILE) {
            report_span(p, s, "compile", s->b);
        } else if (s->kind == LEAT_REC_SYNC && s->a >= sync_end) {
            sync_end = s->b;
            report_span(p, s, name_text(p->sb, q->rec.id), s->b);
        } else if (s->kind == LEAT_REC_ITER && !s->eval && s->a >= iter_end &&
                   !p->job->provisional) {
            iter_end = first_batch_end(p, i);
            report_span(p, s, "epoch_start", iter_end);
        }
    }
}

/* The first step starts at the first sign of training, not with the process. */
static uint64_t first_sign(const struct phase_pass *p)
{
    for (size_t i = 0; i < p->span_count; i++) {
        const struct span *s = &p->spans[i];
        if ((is_fetch(s) && !s->eval) || is_backward(s) || s->kind == LEAT_REC_OPTIMIZER ||
            s->kind == LEAT_REC_CLOSURE || is_named_phase(s, PHASE_INPUT))
            return s->a;
    }
    return p->job->t1_ns;
}

void phases_add(struct step_builder *sb, const struct phase_job *job, struct tally *tally)
{
    struct phase_pass p = {
        .sb = sb, .job = job, .tally = tally, .t0 = job->t0_ns, .t1 = job->t1_ns};
    if (!reserve(&p, &sb->scratch, job->to - job->from)) {
        uint64_t ns = p.t1 > p.t0 && !job->find_start ? p.t1 - p.t0 : 0;
        tally->wall_ns += ns;
        tally->phase_ns[PHASE_OTHER] += ns;
        return;
    }
    gather(&p);
    match_waits(&p);
    qsort(p.spans, p.span_count, sizeof *p.spans, by_span_start);
    if (job->find_start)
        p.t0 = first_sign(&p);
    p.t0 = least(p.t0, p.t1);
    find_evals(&p);
    settle_evals(&p);
    walk_gaps(&p);
    count_records(&p);
    sweep(&p);
    report_spans(&p);
}
