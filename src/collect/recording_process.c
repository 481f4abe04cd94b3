/* recording_process.c: one process that records.
 *
 * Its records go to a step builder, except two kinds: what the allocator of torch holds, and the
 * batches that a DataLoader worker has made.
 *
 * Ranks. A process that makes steps has a rank: the one it declares (torchrun and others set it in
 * the environment), else 0. When two processes make steps under the same rank, one after the other
 * (a shell script that trains twice) or at the same time (a search over settings), the first keeps
 * it; the second gets the next free number from the world size on, and a note is written. Processes
 * without steps, such as workers, get none.
 *
 * The limit of steps. A rank that has made `max_steps` is asked to stop recording. Steps of an
 * inference may still turn out to be an evaluation before a training: until then they are not
 * stored beyond the limit, but the process goes on.
 */
#include "collect/collector_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

/* A gradient accumulation or a sanity check before the first optimizer step is shorter than this.
 */
enum { MAX_PROVISIONAL = 4096 };

struct recording_process *recording_process_new(struct collector *c, pid_t pid)
{
    struct recording_process *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->collector = c;
    s->pid = pid;
    s->rank = s->pidfd = -1;
    return s;
}

void recording_process_free(struct recording_process *s)
{
    if (!s)
        return;
    if (s->open)
        ring_reader_close(&s->reader);
    ends_forget(s);
    step_builder_free(s->builder);
    spans_done(s);
    mem_free(s->memory);
    mem_free(s);
}

/* ---- ranks -------------------------------------------------------------------------------- */

int recording_process_declared_rank(const struct recording_process *s)
{
    return s->header.rank >= 0 && s->header.rank < MAX_RANK ? s->header.rank : -1;
}

static int declared_world(const struct recording_process *s)
{
    return s->header.world_size > 0 && s->header.world_size <= MAX_RANK ? s->header.world_size : 1;
}

static struct recording_process *owner_of(struct collector *c, int rank)
{
    for (size_t i = 0; i < c->recording_count; i++)
        if (c->recording[i]->rank == rank)
            return c->recording[i];
    return NULL;
}

static void assign_rank(struct recording_process *s)
{
    struct collector *c = s->collector;
    int declared = recording_process_declared_rank(s), want = declared < 0 ? 0 : declared;
    if (!owner_of(c, want)) {
        s->rank = want;
        return;
    }
    int next = 1;
    for (size_t i = 0; i < c->recording_count; i++) {
        if (declared_world(c->recording[i]) > next)
            next = declared_world(c->recording[i]);
        if (c->recording[i]->rank >= next)
            next = c->recording[i]->rank + 1;
    }
    s->rank = next;
    lost_add(c, "notes", 1, "process %d also trains as rank %d: shown as rank %d", (int)s->pid,
             want, next);
}

/* The parent of a worker. Under a fork server, which is the parent of all and trains nothing, the
 * process with the rank that the worker declares. NULL: not known. */
struct recording_process *recording_process_trainer(const struct recording_process *s)
{
    struct recording_process *parent = recording_process_find(s->collector, s->header.ppid);
    if (parent && parent != s && parent->rank >= 0)
        return parent;
    int declared = recording_process_declared_rank(s);
    struct recording_process *owner = owner_of(s->collector, declared < 0 ? 0 : declared);
    return owner != s ? owner : NULL;
}

/* A worker has the rank of its trainer. */
static int rank_of(const struct recording_process *s)
{
    if (s->rank >= 0)
        return s->rank;
    const struct recording_process *trainer = recording_process_trainer(s);
    if (trainer)
        return trainer->rank;
    int declared = recording_process_declared_rank(s);
    return declared < 0 ? 0 : declared;
}

/* ---- memory of the allocator -------------------------------------------------------------- */

static void write_memory(struct recording_process *s, const struct memory_sample *m, int64_t step)
{
    struct collector *c = s->collector;
    struct memory_sample_row row = {
        .t_ns = store_signed(collector_relative(c, m->t_ns)),
        .rank = rank_of(s),
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
static void release_memory(struct recording_process *s, uint64_t until_ns, int64_t step)
{
    size_t n = 0;
    while (n < s->memory_count && s->memory[n].t_ns <= until_ns)
        write_memory(s, &s->memory[n++], step);
    if (n > 0)
        memmove(s->memory, s->memory + n, (s->memory_count - n) * sizeof *s->memory);
    s->memory_count -= n;
}

/* The figures of one moment are a record each, and one row. */
static void add_memory(struct recording_process *s, const struct rec *r)
{
    int64_t bytes = r->arg <= INT64_MAX ? (int64_t)r->arg : -1;
    if (!s->memory && !(s->memory = mem_alloc_array(MAX_MEMORY_WAITING, sizeof *s->memory)))
        return;
    struct memory_sample *row = s->memory_count ? &s->memory[s->memory_count - 1] : NULL;
    if (!row || row->t_ns != r->t1_ns || row->device != r->id) {
        if (s->memory_count == MAX_MEMORY_WAITING)
            release_memory(s, s->memory[MAX_MEMORY_WAITING / 2].t_ns,
                           s->builder ? step_builder_step_at(s->builder) : 0);
        if (s->memory_count == MAX_MEMORY_WAITING) /* times that go backwards */
            s->memory_count = 0;
        row = &s->memory[s->memory_count++];
        *row = (struct memory_sample){r->t1_ns, r->id, -1, -1, -1, -1};
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

static void add_worker_batch(struct recording_process *s, const struct rec *r)
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

/* ---- output of the step builder
 * ----------------------------------------------------------------------- */

static void stop(struct recording_process *s)
{
    struct collector *c = s->collector;
    s->stopped = true;
    ring_reader_stop(&s->reader);
    for (size_t i = 0; i < c->recording_count; i++) { /* its workers too */
        struct recording_process *worker = c->recording[i];
        if (worker->open && worker->header.role == LEAT_ROLE_WORKER &&
            recording_process_trainer(worker) == s)
            ring_reader_stop(&worker->reader);
    }
}

static void on_step(void *context, const struct step_row *row)
{
    struct recording_process *s = context;
    struct collector *c = s->collector;
    int64_t limit = c->options.max_steps;
    if (s->header.role == LEAT_ROLE_WORKER)
        return; /* a model that a dataset runs in a worker is not the training */
    if (s->rank < 0)
        assign_rank(s);
    s->trains = !(row->flags & STEP_INFERENCE);
    release_memory(s, c->options.start_ns + (uint64_t)row->end_ns, row->id);
    if (limit > 0 && s->steps >= limit) {
        if (++s->provisional > MAX_PROVISIONAL && !s->stopped)
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
    struct recording_process *s = context;
    if (s->rank >= 0)
        store_drop_steps(s->collector->writer, s->rank, 0);
    s->steps = s->provisional = 0;
}

static void on_span(void *context, const char *name, int64_t step, uint64_t start_ns,
                    uint64_t end_ns, uint64_t other_ns)
{
    struct recording_process *s = context;
    if (s->collector->options.max_steps > 0 && step >= s->collector->options.max_steps)
        return;
    spans_add(s, name, start_ns, end_ns, other_ns);
}

static int make_builder(struct recording_process *s)
{
    struct step_sink sink = {s, on_step, on_drop, on_span};
    return step_builder_new(s->collector->options.start_ns, s->header.signals, &sink, &s->builder);
}

/* ---- draining ----------------------------------------------------------------------------- */

/* The records of a whole drain: the step builder needs all threads at once (reason:
 * step_builder.c). */
static int take_all(struct recording_process *s)
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

static void learn_names(struct recording_process *s)
{
    char name[REC_NAME_BYTES];
    for (uint32_t id = s->names_known; id < s->header.names_used && id < REC_NAMES; id++)
        if (ring_reader_name(&s->reader, id, name))
            step_builder_name(s->builder, id, name);
    s->names_known = s->header.names_used;
}

/* What the step builder takes stays in the buffer; the rest is added up here. */
static int route(struct recording_process *s, int count, uint64_t now_ns)
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

int recording_process_drain(struct recording_process *s)
{
    int count = take_all(s);
    uint64_t taken_ns = clock_now_ns(); /* all records taken so far ended before this */
    /* After the records: names they use are in the table by now. */
    ring_reader_header(&s->reader, &s->header);
    int kept = route(s, count, taken_ns);
    if (kept > 0 && !s->builder && make_builder(s) < 0)
        s->refused += (uint64_t)kept;
    s->lost = ring_reader_lost(&s->reader) + s->refused;
    if (!s->builder)
        return count;
    step_builder_signals(s->builder, s->header.signals);
    learn_names(s);
    int result = step_builder_feed(s->builder, s->collector->buffer, kept);
    return result < 0 ? result : count;
}

/* ---- rows --------------------------------------------------------------------------------- */

static void write_worker(struct recording_process *s)
{
    if (s->header.role != LEAT_ROLE_WORKER && s->worker.batches == 0)
        return;
    const struct recording_process *trainer = input_loader_process(s);
    struct worker_row row = {
        .pid = s->pid,
        .parent_pid = trainer ? trainer->pid : s->header.ppid,
        .rank = rank_of(s),
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

static void write_loader(struct recording_process *s, uint32_t id,
                         const struct leat_loader_info *info, const struct loader_totals *l)
{
    struct loader_row row = {
        .pid = s->pid,
        .loader = id,
        .rank = rank_of(s),
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

/* A loader whose batches leat's engine makes. */
static void write_engine(struct recording_process *s, uint32_t id)
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

static void write_loaders(struct recording_process *s)
{
    if (!s->builder || s->header.role == LEAT_ROLE_WORKER)
        return;
    for (uint32_t id = 0; id < s->header.loaders_used && id < REC_LOADERS; id++) {
        struct leat_loader_info info;
        const struct loader_totals *l = step_builder_loader(s->builder, id);
        if (!l || !ring_reader_loader(&s->reader, id, &info))
            continue;
        write_loader(s, id, &info, l);
        write_engine(s, id);
    }
}

/* The rank under which spans are stored, or -1: a process without steps must not replace the totals
 * of one that has steps. */
static int span_rank(const struct recording_process *s)
{
    int rank = rank_of(s);
    if (s->rank >= 0)
        return s->rank;
    return s->header.role == LEAT_ROLE_WORKER || owner_of(s->collector, rank) ? -1 : rank;
}

void recording_process_write(struct recording_process *s)
{
    write_worker(s);
    write_loaders(s);
    cuda_write(s, rank_of(s));
    if (span_rank(s) >= 0)
        spans_write_totals(s, span_rank(s));
    tree_write_process(s->collector, s, tree_find(s->collector, s->pid));
}

void recording_process_end(struct recording_process *s, uint64_t now_ns)
{
    if (s->builder)
        step_builder_end(s->builder, now_ns);
    release_memory(s, UINT64_MAX, s->builder ? step_builder_step_at(s->builder) : 0);
    s->ended_ns = collector_relative(s->collector, now_ns);
    input_end(s);
    recording_process_write(s);
    ring_reader_close(&s->reader);
    ends_forget(s);
    s->open = false;
    step_builder_free(s->builder);
    s->builder = NULL;
    spans_done(s);
    mem_free(s->memory);
    s->memory = NULL;
    s->memory_count = 0;
}
