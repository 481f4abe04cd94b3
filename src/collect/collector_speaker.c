/* collector_speaker.c: one process that records.
 *
 * Its records go to a fold, but for two kinds that need none: what the allocator of torch holds,
 * and the batches that a DataLoader worker has made.
 *
 * Ranks. A process that makes steps is a rank: the one it said (torchrun and others tell it by
 * environment), else 0. When two processes make steps under the same rank, be it one after the
 * other (a shell script that trains twice) or side by side (a search over settings), the first
 * keeps it; the second gets the next free number from the world's size on, and a note says so.
 * Processes that make no step, workers among them, never claim one.
 *
 * The limit of steps. A rank that has made `max_steps` is asked to record no more. Steps of an
 * inference count only once they are clearly no evaluation before a training: until then they are
 * not stored beyond the limit, but the process may go on.
 */
#include "collect/collector_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

/* A gradient accumulation or a sanity check before the first optimizer step is shorter than this.
 */
enum { PROVISIONAL_MOST = 4096 };

struct speaker *speaker_new(struct collector *c, pid_t pid)
{
    struct speaker *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->collector = c;
    s->pid = pid;
    s->rank = -1;
    return s;
}

void speaker_free(struct speaker *s)
{
    if (!s)
        return;
    if (s->open)
        ring_reader_close(&s->reader);
    fold_free(s->fold);
    spans_done(s);
    mem_free(s->memory);
    mem_free(s);
}

/* ---- ranks -------------------------------------------------------------------------------- */

int speaker_said_rank(const struct speaker *s)
{
    return s->header.rank >= 0 && s->header.rank < RANK_MOST ? s->header.rank : -1;
}

static int said_world(const struct speaker *s)
{
    return s->header.world_size > 0 && s->header.world_size <= RANK_MOST ? s->header.world_size : 1;
}

static struct speaker *owner_of(struct collector *c, int rank)
{
    for (size_t i = 0; i < c->speaker_count; i++)
        if (c->speakers[i]->rank == rank)
            return c->speakers[i];
    return NULL;
}

static void claim_rank(struct speaker *s)
{
    struct collector *c = s->collector;
    int said = speaker_said_rank(s), want = said < 0 ? 0 : said;
    if (!owner_of(c, want)) {
        s->rank = want;
        return;
    }
    int next = 1;
    for (size_t i = 0; i < c->speaker_count; i++) {
        if (said_world(c->speakers[i]) > next)
            next = said_world(c->speakers[i]);
        if (c->speakers[i]->rank >= next)
            next = c->speakers[i]->rank + 1;
    }
    s->rank = next;
    lost_add(c, "notes", 1, "process %d also trains as rank %d: shown as rank %d", (int)s->pid,
             want, next);
}

/* Whom a worker works for: its parent; under a fork server, which is everybody's parent and trains
 * nothing, the process that trains as the rank the worker was told. NULL when that is not known. */
struct speaker *speaker_master(const struct speaker *s)
{
    struct speaker *parent = speaker_find(s->collector, s->header.ppid);
    if (parent && parent != s && parent->rank >= 0)
        return parent;
    int said = speaker_said_rank(s);
    struct speaker *owner = owner_of(s->collector, said < 0 ? 0 : said);
    return owner != s ? owner : NULL;
}

/* A worker knows its rank only through its master. */
static int rank_of_family(const struct speaker *s)
{
    if (s->rank >= 0)
        return s->rank;
    const struct speaker *master = speaker_master(s);
    if (master)
        return master->rank;
    int said = speaker_said_rank(s);
    return said < 0 ? 0 : said;
}

/* ---- memory told by the process ------------------------------------------------------------- */

static void write_memory(struct speaker *s, const struct memory_row *m, int64_t step)
{
    struct collector *c = s->collector;
    struct memory_sample_row row = {
        .t_ns = store_signed(collector_relative(c, m->t_ns)),
        .rank = rank_of_family(s),
        .device = m->device,
        .step = step,
        .allocated = store_or_null(m->allocated),
        .reserved = store_or_null(m->reserved),
        .split = store_or_null(m->split),
        .retries = store_or_null(m->retries),
    };
    store_add_memory_sample(c->writer, &row);
}

/* Rows wait until the step they fall into has ended. */
static void release_memory(struct speaker *s, uint64_t until_ns, int64_t step)
{
    size_t n = 0;
    while (n < s->memory_count && s->memory[n].t_ns <= until_ns)
        write_memory(s, &s->memory[n++], step);
    if (n > 0)
        memmove(s->memory, s->memory + n, (s->memory_count - n) * sizeof *s->memory);
    s->memory_count -= n;
}

/* The figures of one moment are a record each, and one row. */
static void add_memory(struct speaker *s, const struct rec *r)
{
    int64_t bytes = r->arg <= INT64_MAX ? (int64_t)r->arg : -1;
    if (!s->memory && !(s->memory = mem_alloc_array(MEMORY_WAITING, sizeof *s->memory)))
        return;
    struct memory_row *row = s->memory_count ? &s->memory[s->memory_count - 1] : NULL;
    if (!row || row->t_ns != r->t1_ns || row->device != r->id) {
        if (s->memory_count == MEMORY_WAITING)
            release_memory(s, s->memory[MEMORY_WAITING / 2].t_ns,
                           s->fold ? fold_step_at(s->fold) : 0);
        if (s->memory_count == MEMORY_WAITING) /* times that run backwards */
            s->memory_count = 0;
        row = &s->memory[s->memory_count++];
        *row = (struct memory_row){r->t1_ns, r->id, -1, -1, -1, -1};
    }
    if (r->flags & LEAT_REC_RESERVED)
        row->reserved = bytes;
    else if (r->flags & LEAT_REC_SPLIT)
        row->split = bytes;
    else if (r->flags & LEAT_REC_RETRIES)
        row->retries = bytes;
    else
        row->allocated = bytes;
}

static void add_worker_batch(struct speaker *s, const struct rec *r)
{
    uint64_t ns = r->t1_ns - r->t0_ns;
    uint64_t first = collector_relative(s->collector, r->t0_ns);
    if (s->worker.batches == 0 || first < s->worker.first_ns)
        s->worker.first_ns = first;
    s->worker.last_ns = collector_relative(s->collector, r->t1_ns);
    s->worker.batches++;
    s->worker.samples += (uint32_t)r->arg;
    s->worker.busy_ns += ns;
    if (ns > s->worker.max_ns)
        s->worker.max_ns = ns;
}

/* ---- what fold says ----------------------------------------------------------------------- */

static void stop(struct speaker *s)
{
    struct collector *c = s->collector;
    s->stopped = true;
    ring_reader_stop(&s->reader);
    for (size_t i = 0; i < c->speaker_count; i++) { /* its workers too */
        struct speaker *worker = c->speakers[i];
        if (worker->open && worker->header.role == LEAT_ROLE_WORKER && speaker_master(worker) == s)
            ring_reader_stop(&worker->reader);
    }
}

static void on_step(void *context, const struct step_row *row)
{
    struct speaker *s = context;
    struct collector *c = s->collector;
    int64_t limit = c->options.max_steps;
    if (s->header.role == LEAT_ROLE_WORKER)
        return; /* a model that a dataset runs in a worker is not the training */
    if (s->rank < 0)
        claim_rank(s);
    s->trains = !(row->flags & STEP_INFERENCE);
    release_memory(s, c->options.start_ns + (uint64_t)row->end_ns, row->id);
    if (limit > 0 && s->steps >= limit) {
        if (++s->provisional > PROVISIONAL_MOST && !s->stopped)
            stop(s);
        return;
    }
    struct step_row full = *row;
    full.id = store_step_id(s->rank, row->id);
    store_add_step(c->writer, &full);
    s->steps++;
    if (limit > 0 && s->steps >= limit && s->trains)
        stop(s);
}

static void on_drop(void *context)
{
    struct speaker *s = context;
    if (s->rank >= 0)
        store_drop_steps(s->collector->writer, s->rank, 0);
    s->steps = s->provisional = 0;
}

static void on_span(void *context, const char *name, int64_t step, uint64_t start_ns,
                    uint64_t end_ns, uint64_t other_ns)
{
    struct speaker *s = context;
    if (s->collector->options.max_steps > 0 && step >= s->collector->options.max_steps)
        return;
    spans_add(s, name, start_ns, end_ns, other_ns);
}

static int make_fold(struct speaker *s)
{
    struct fold_sink sink = {s, on_step, on_drop, on_span};
    return fold_new(s->collector->options.start_ns, s->header.signals, &sink, &s->fold);
}

/* ---- draining ----------------------------------------------------------------------------- */

/* A whole drain: fold takes all threads at once, to order them (fold.c says why). */
static int take_all(struct speaker *s)
{
    struct collector *c = s->collector;
    const size_t most = (size_t)REC_RINGS * REC_RING_RECORDS;
    size_t count = 0;
    for (;;) {
        if (count == c->buffer_cap &&
            (count >= most ||
             mem_reserve(&c->buffer, &c->buffer_cap, count + 4096, sizeof *c->buffer) < 0))
            break;
        int taken = ring_reader_take(&s->reader, c->buffer + count, (int)(c->buffer_cap - count));
        if (taken <= 0)
            break;
        count += (size_t)taken;
    }
    return (int)count;
}

static void learn_names(struct speaker *s)
{
    char name[REC_NAME_BYTES];
    for (uint32_t id = s->names_known; id < s->header.names_used && id < REC_NAMES; id++)
        if (ring_reader_name(&s->reader, id, name))
            fold_name(s->fold, id, name);
    s->names_known = s->header.names_used;
}

/* Sorts a drain: what fold takes stays in the buffer, the rest is summed up here. */
static int route(struct speaker *s, int count, uint64_t now_ns)
{
    struct ring_record *records = s->collector->buffer;
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const struct ring_record *r = &records[i];
        if (r->rec.t1_ns > now_ns)
            s->refused++;
        else if (r->rec.kind == LEAT_REC_MEMORY)
            add_memory(s, &r->rec);
        else if (r->rec.kind == LEAT_REC_WORKER_FETCH)
            add_worker_batch(s, &r->rec);
        else
            records[kept++] = *r;
    }
    return kept;
}

int speaker_drain(struct speaker *s)
{
    int count = take_all(s);
    uint64_t taken_ns = clock_now_ns(); /* whatever is in hand ended before this */
    /* After the records: names they use are in the table by now. */
    ring_reader_header(&s->reader, &s->header);
    int kept = route(s, count, taken_ns);
    if (kept > 0 && !s->fold && make_fold(s) < 0)
        s->refused += (uint64_t)kept;
    s->lost = ring_reader_lost(&s->reader) + s->refused;
    if (!s->fold)
        return count;
    fold_signals(s->fold, s->header.signals);
    learn_names(s);
    int result = fold_feed(s->fold, s->collector->buffer, kept);
    return result < 0 ? result : count;
}

/* ---- rows --------------------------------------------------------------------------------- */

static void write_worker(struct speaker *s)
{
    if (s->header.role != LEAT_ROLE_WORKER && s->worker.batches == 0)
        return;
    const struct speaker *master = input_master(s);
    struct worker_row row = {
        .pid = s->pid,
        .parent_pid = master ? master->pid : s->header.ppid,
        .rank = rank_of_family(s),
        .worker_id = store_or_null(s->header.worker_id),
        .batches = s->worker.batches,
        .samples = s->worker.samples ? s->worker.samples : STORE_NULL,
        .busy_ns = store_signed(s->worker.busy_ns),
        .first_ns = store_signed(s->worker.first_ns),
        .last_ns = store_signed(s->worker.last_ns),
        .max_ns = store_signed(s->worker.max_ns),
        .loader = store_or_null(input_loader(s)),
    };
    store_add_worker(s->collector->writer, &row);
}

static void write_loader(struct speaker *s, uint32_t id, const struct leat_loader_info *info,
                         const struct fold_loader *l)
{
    struct loader_row row = {
        .pid = s->pid,
        .loader = id,
        .rank = rank_of_family(s),
        .use = l->trained > 0               ? "train"
               : s->steps > 0 && !s->trains ? "infer"
                                            : "eval",
        .dataset = info->dataset[0] ? info->dataset : NULL,
        .dataset_length = store_or_null(info->dataset_length),
        .location = info->where[0] ? info->where : NULL,
        .batch_size = store_or_null(info->batch_size),
        .num_workers = store_or_null(info->num_workers),
        .prefetch_factor = store_or_null(info->prefetch_factor),
        .pin_memory = store_or_null(info->pin_memory),
        .persistent_workers = store_or_null(info->persistent_workers),
        .iterable = store_or_null(info->iterable),
        .own = store_or_null(info->own),
        .engine_readable = store_or_null(info->engine_readable),
        .iterations = l->iterations,
        .batches = l->batches,
        .samples = l->samples ? l->samples : STORE_NULL,
        .wait_ns = store_signed(l->wait_ns),
        .first_wait_ns = store_signed(l->first_wait_ns),
        .background_ns = store_signed(l->background_ns),
    };
    store_add_loader(s->collector->writer, &row);
}

/* A loader whose batches leat's own engine makes. */
static void write_engine(struct speaker *s, uint32_t id)
{
    struct ring_engine e;
    if (!ring_reader_engine(&s->reader, id, &e))
        return;
    const struct leat_stages *t = &e.stages;
    struct engine_row row = {
        .pid = s->pid,
        .loader = id,
        .source = e.source,
        .ordering = e.order,
        .threads = e.threads,
        .cores = e.cores,
        .ahead = e.ahead,
        .memory_bytes = store_signed(e.memory_bytes),
        .batches = store_signed(t->batches),
        .samples = store_signed(t->samples),
        .bytes = store_signed(t->bytes),
        .waits = store_signed(t->waits),
        .wait_ns = store_signed(t->wait_ns),
        .help_ns = store_signed(t->help_ns),
        .order_ns = store_signed(t->order_ns),
        .read_ns = store_signed(t->read_ns),
        .layout_ns = store_signed(t->layout_ns),
        .idle_ns = store_signed(t->idle_ns),
    };
    store_add_engine(s->collector->writer, &row);
}

static void write_loaders(struct speaker *s)
{
    if (!s->fold || s->header.role == LEAT_ROLE_WORKER)
        return;
    for (uint32_t id = 0; id < s->header.loaders_used && id < REC_LOADERS; id++) {
        struct leat_loader_info info;
        const struct fold_loader *l = fold_loader(s->fold, id);
        if (!l || !ring_reader_loader(&s->reader, id, &info))
            continue;
        write_loader(s, id, &info, l);
        write_engine(s, id);
    }
}

/* The rank under which spans are stored, or -1: a process that made no step must not write over the
 * totals of one that did. */
static int span_rank(const struct speaker *s)
{
    int rank = rank_of_family(s);
    if (s->rank >= 0)
        return s->rank;
    return s->header.role == LEAT_ROLE_WORKER || owner_of(s->collector, rank) ? -1 : rank;
}

void speaker_rows(struct speaker *s)
{
    write_worker(s);
    write_loaders(s);
    cuda_write(s, rank_of_family(s));
    if (span_rank(s) >= 0)
        spans_write_totals(s, span_rank(s));
    sample_write_process(s->collector, s, sample_find(s->collector, s->pid));
}

void speaker_end(struct speaker *s, uint64_t now_ns)
{
    if (s->fold)
        fold_end(s->fold, now_ns);
    release_memory(s, UINT64_MAX, s->fold ? fold_step_at(s->fold) : 0);
    s->ended_ns = collector_relative(s->collector, now_ns);
    input_end(s);
    speaker_rows(s);
    ring_reader_close(&s->reader);
    s->open = false;
    fold_free(s->fold);
    s->fold = NULL;
    spans_done(s);
    mem_free(s->memory);
    s->memory = NULL;
    s->memory_count = 0;
}
