/* collector_input.c: what happens inside the input path, from the totals in the processes' memory
 * to input_parts, input_hist, input_ready and input_lines.
 *
 * Rows are written per group: one loader of one process, and one of its workers, or the process
 * itself (worker -1), or its workers whose number is not known (-2). Workers that are not
 * persistent are new processes every epoch, so a group is the sum of all processes that were this
 * worker:
 *
 *     ended workers ---- added once ---------> group (kept in memory) --+
 *     running workers -- read again each time --------------------------+--> rows, replaced
 *
 * So the tables grow with loaders and workers, and not with epochs. Their limits:
 *   - MAX_GROUPS groups; workers beyond them are counted in `lost`.
 *   - bins: the first groups have those of step_hist, 3 % wide; of later groups several bins are
 *     merged into their middle (merge_of).
 *   - lines: REC_LINES of an early group, COARSE_LINES of a later one.
 * Parts are written whenever rows are; bins and lines, which are many, only when the counts have
 * grown by an eighth, and at the end. So their cost falls as the run goes on, and the database of a
 * leat that is killed lacks at most an eighth of them.
 *
 * The group of a worker is decided once, so that no outdated row stays in the database.
 */
#include "collect/collector_internal.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_GROUPS = 1024,
    FINE_GROUPS = 64, /* with all bins and lines: 8 ranks of 7 workers */
    COARSE_LINES = 24,
    OWN_PROCESS = -1,    /* worker: the process itself */
    UNKNOWN_WORKER = -2, /* worker: those whose number is not known, together */
    UNKNOWN_LOADER = -1  /* loader */
};

struct part_total {
    uint64_t n, total_ns, max_ns, bytes;
    uint64_t *bins; /* owned, DURATION_BUCKETS; NULL: it never happened */
};

struct input_group {
    int64_t pid;
    int loader, worker;
    struct part_total parts[LEAT_PARTS_COUNT];
    uint64_t ready[REC_READY_COUNTS]; /* requests that found so many batches ready */
    struct ring_line *lines;          /* owned; `below` is an index among them */
    size_t line_count, line_cap, line_most;
    uint64_t lines_lost;
    uint64_t written, seen; /* occurrences at the last writing of bins and lines, and of parts */
};

static const char *const part_names[LEAT_PARTS_COUNT] = {
#define X(name, text) [LEAT_PART_##name] = text,
    LEAT_PARTS(X)
#undef X
};

/* ---- groups ------------------------------------------------------------------------------- */

static struct input_group *find_group(struct collector *c, int64_t pid, int loader, int worker)
{
    for (size_t i = 0; i < c->group_count; i++) {
        struct input_group *p = c->groups[i];
        if (p->pid == pid && p->loader == loader && p->worker == worker)
            return p;
    }
    return NULL;
}

static struct input_group *make_group(struct collector *c, int64_t pid, int loader, int worker)
{
    struct input_group *p = find_group(c, pid, loader, worker);
    if (p || c->group_count >= MAX_GROUPS)
        return p;
    if (mem_reserve(&c->groups, &c->group_capacity, c->group_count + 1,
                    sizeof(struct input_group *)) < 0 ||
        !(p = mem_alloc(sizeof *p)))
        return NULL;
    p->pid = pid;
    p->loader = loader;
    p->worker = worker;
    p->line_most = c->group_count < FINE_GROUPS ? REC_LINES : COARSE_LINES;
    c->groups[c->group_count++] = p;
    return p;
}

/* Empties a group, except its key and what it has written. */
static void clear_group(struct input_group *p)
{
    for (int i = 0; i < LEAT_PARTS_COUNT; i++)
        mem_free(p->parts[i].bins);
    memset(p->parts, 0, sizeof p->parts);
    memset(p->ready, 0, sizeof p->ready);
    mem_free(p->lines);
    p->lines = NULL;
    p->line_count = p->line_cap = 0;
    p->lines_lost = 0;
}

void input_done(struct collector *c)
{
    for (size_t i = 0; i < c->group_count; i++) {
        clear_group(c->groups[i]);
        mem_free(c->groups[i]);
    }
    mem_free(c->groups);
    c->groups = NULL;
    c->group_count = c->group_capacity = 0;
}

/* ---- adding up ---------------------------------------------------------------------------- */

/* The shared memory may hold garbage: sums saturate. */
static uint64_t sum(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

static int add_part(struct part_total *to, const struct ring_part *from)
{
    if (!to->bins && !(to->bins = mem_alloc_array(DURATION_BUCKETS, sizeof *to->bins)))
        return -ENOMEM;
    to->n = sum(to->n, from->n);
    to->total_ns = sum(to->total_ns, from->total_ns);
    to->bytes = sum(to->bytes, from->bytes);
    if (from->max_ns > to->max_ns)
        to->max_ns = from->max_ns;
    duration_histogram_merge(to->bins, from->bins);
    return 0;
}

static bool same_line(const struct ring_line *a, const struct ring_line *b)
{
    return a->line == b->line && a->part == b->part && a->below == b->below &&
           strcmp(a->function, b->function) == 0 && strcmp(a->file, b->file) == 0;
}

/* Adds a line whose `below` is an index in this group. Returns its index, or -1: the group is full,
 * and its samples are counted as lost. */
static int add_line(struct input_group *p, const struct ring_line *line)
{
    size_t i = 0;
    while (i < p->line_count && !same_line(&p->lines[i], line))
        i++;
    if (i == p->line_count) {
        if (i >= p->line_most ||
            mem_reserve(&p->lines, &p->line_cap, p->line_count + 1, sizeof *p->lines) < 0) {
            p->lines_lost = sum(p->lines_lost, line->samples);
            return -1;
        }
        p->lines[p->line_count++] = *line;
        return (int)i;
    }
    struct ring_line *to = &p->lines[i];
    to->ns = sum(to->ns, line->ns);
    to->read_ns = sum(to->read_ns, line->read_ns);
    to->decode_ns = sum(to->decode_ns, line->decode_ns);
    to->blocked_ns = sum(to->blocked_ns, line->blocked_ns);
    to->samples = sum(to->samples, line->samples);
    return (int)i;
}

/* The last slot is shared by all later loaders: its loader is always unknown, so that no outdated
 * row stays when a second one comes. */
static int loader_of_slot(uint32_t slot)
{
    return slot == REC_PART_LOADERS - 1 ? UNKNOWN_LOADER : (int)slot;
}

/* All input of a worker belongs to its one loader; of other processes only the slot of this loader.
 */
static bool slot_is_of(const struct input_group *p, uint32_t slot)
{
    return p->worker != OWN_PROCESS || loader_of_slot(slot) == p->loader;
}

static int add_parts(struct input_group *to, const struct recording_process *s)
{
    struct ring_part part;
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        for (uint32_t i = 0; i < LEAT_PARTS_COUNT; i++)
            if (slot_is_of(to, slot) && ring_reader_part(&s->reader, slot, i, &part) &&
                add_part(&to->parts[i], &part) < 0)
                return -ENOMEM;
    return 0;
}

static void add_ready(struct input_group *to, const struct recording_process *s)
{
    uint64_t requests[REC_READY_COUNTS];
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        if (slot_is_of(to, slot) && ring_reader_ready(&s->reader, slot, requests))
            for (int i = 0; i < REC_READY_COUNTS; i++)
                to->ready[i] = sum(to->ready[i], requests[i]);
}

static void add_lines(struct input_group *to, const struct recording_process *s)
{
    int index_of[REC_LINES]; /* index in the group of each line of the process */
    struct ring_line line;
    for (uint32_t id = 0; id < REC_LINES; id++) {
        index_of[id] = -1;
        if (!ring_reader_line(&s->reader, id, &line))
            continue;
        uint32_t slot = line.loader < REC_PART_LOADERS ? line.loader : REC_PART_LOADERS - 1;
        if (!slot_is_of(to, slot))
            continue;
        bool of_user = line.below < 0;
        line.loader = 0; /* the group has it */
        line.below = of_user ? -1 : index_of[line.below];
        if (!of_user && line.below < 0) /* without its caller it would count as a user's line */
            to->lines_lost = sum(to->lines_lost, line.samples);
        else
            index_of[id] = add_line(to, &line);
    }
}

/* ---- workers and their loaders
 * ------------------------------------------------------------------- */

static bool is_worker(const struct recording_process *s)
{
    return s->header.role == LEAT_ROLE_WORKER;
}

/* The only process that has loaders, or NULL. */
static struct recording_process *only_process_with_loaders(struct collector *c)
{
    struct recording_process *found = NULL;
    for (size_t i = 0; i < c->recording_count; i++) {
        struct recording_process *s = c->recording[i];
        if (is_worker(s) || s->header.loaders_used == 0)
            continue;
        if (found)
            return NULL;
        found = s;
    }
    return found;
}

/* The process that has the worker's loader: its parent, if it has loaders. A fork server has none.
 */
struct recording_process *input_loader_process(const struct recording_process *s)
{
    struct recording_process *parent = recording_process_find(s->collector, s->header.ppid);
    if (parent && parent != s && !is_worker(parent) && parent->header.loaders_used > 0)
        return parent;
    struct recording_process *owner = recording_process_trainer(s);
    return owner ? owner : only_process_with_loaders(s->collector);
}

/* The loader of a process that has workers, if there is exactly one. After the process has ended
 * the result is kept: its workers may send their last data after it. */
static int only_loader_with_workers(const struct recording_process *s)
{
    struct leat_loader_info info;
    int found = UNKNOWN_LOADER;
    if (!s->open)
        return s->input.loader;
    for (uint32_t id = 0; ring_reader_loader(&s->reader, id, &info); id++) {
        if (info.num_workers <= 0)
            continue;
        if (found != UNKNOWN_LOADER)
            return UNKNOWN_LOADER;
        found = (int)id;
    }
    return found;
}

static bool has_input(const struct recording_process *s, uint32_t slot)
{
    return s->header.parts_used[slot] != 0 || s->header.ready_used >> slot & 1;
}

static bool has_any_input(const struct recording_process *s)
{
    bool any = s->header.lines_used > 0;
    for (uint32_t slot = 0; slot < REC_PART_LOADERS && !any; slot++)
        any = has_input(s, slot);
    return any;
}

/* Decides the group of a worker, at the latest when it ends: then its parent is assumed to have the
 * loader. */
static bool settle_group(struct recording_process *s, bool ends)
{
    if (s->input.settled)
        return true;
    const struct recording_process *owner = input_loader_process(s);
    int declared = s->header.worker_loader;
    if (!ends && (!owner || (declared < 0 && !has_any_input(s))))
        return false;
    s->input.pid = owner ? owner->pid : s->header.ppid;
    s->input.loader = declared >= 0 && declared < REC_LOADERS ? declared
                      : owner                                 ? only_loader_with_workers(owner)
                                                              : UNKNOWN_LOADER;
    s->input.worker = s->header.worker_id >= 0 ? s->header.worker_id : UNKNOWN_WORKER;
    s->input.settled = true;
    return true;
}

int input_loader(struct recording_process *s)
{
    return is_worker(s) && settle_group(s, false) ? s->input.loader : UNKNOWN_LOADER;
}

/* Calls `visit` for each group that this process adds to; NULL: beyond MAX_GROUPS. */
static void each_group(struct recording_process *s, bool ends,
                       void (*visit)(struct input_group *, struct recording_process *))
{
    struct collector *c = s->collector;
    if (!has_any_input(s))
        return;
    if (is_worker(s)) {
        if (settle_group(s, ends))
            visit(make_group(c, s->input.pid, s->input.loader, s->input.worker), s);
        return;
    }
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        if (has_input(s, slot))
            visit(make_group(c, s->pid, loader_of_slot(slot), OWN_PROCESS), s);
}

static void only_make(struct input_group *p, struct recording_process *s)
{
    (void)p;
    (void)s;
}

static void add_ended(struct input_group *p, struct recording_process *s)
{
    if (!p || add_parts(p, s) < 0) {
        s->collector->input_lost++;
        return;
    }
    add_ready(p, s);
    add_lines(p, s);
}

void input_end(struct recording_process *s)
{
    each_group(s, true, add_ended);
    if (!is_worker(s))
        s->input.loader = only_loader_with_workers(s);
    s->collector->lines_lost = sum(s->collector->lines_lost, s->header.lines_lost);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* How many buckets are written as one, in the i-th group: 3, 12 and 36 % wide. They are written as
 * the middle one. */
static uint32_t merge_of(size_t i)
{
    return i < FINE_GROUPS ? 1 : i < FINE_GROUPS * 4 ? 4 : 12;
}

static uint32_t merged_bucket(uint32_t bucket, uint32_t merge)
{
    if (merge == 1)
        return bucket;
    uint32_t middle = bucket / merge * merge + merge / 2;
    return middle < DURATION_BUCKETS ? middle : DURATION_BUCKETS - 1;
}

static void write_hist(struct collector *c, const struct input_group *p, enum leat_part part,
                       uint32_t merge)
{
    uint64_t bins[DURATION_BUCKETS] = {0};
    for (uint32_t bin = 0; bin < DURATION_BUCKETS; bin++) {
        uint64_t *to = &bins[merged_bucket(bin, merge)];
        *to = sum(*to, p->parts[part].bins[bin]);
    }
    for (int bin = 0; bin < DURATION_BUCKETS; bin++)
        if (bins[bin])
            store_add_input_bin(c->writer, &(struct input_bin_row){
                                               .pid = p->pid,
                                               .loader = p->loader,
                                               .worker = p->worker,
                                               .part = part_names[part],
                                               .bin = bin,
                                               .n = store_signed(bins[bin]),
                                           });
}

static void write_ready(struct collector *c, const struct input_group *p)
{
    for (int i = 0; i < REC_READY_COUNTS; i++)
        if (p->ready[i])
            store_add_input_ready(c->writer, &(struct input_ready_row){
                                                 .pid = p->pid,
                                                 .loader = p->loader,
                                                 .worker = p->worker,
                                                 .batches = i,
                                                 .n = store_signed(p->ready[i]),
                                             });
}

static void write_parts(struct collector *c, const struct input_group *p)
{
    for (int i = 0; i < LEAT_PARTS_COUNT; i++) {
        const struct part_total *t = &p->parts[i];
        if (!t->n)
            continue;
        struct input_part_row row = {
            .pid = p->pid,
            .loader = p->loader,
            .worker = p->worker,
            .part = part_names[i],
            .n = store_signed(t->n),
            .total_ns = store_signed(t->total_ns),
            .max_ns = store_signed(t->max_ns),
            .bytes = store_signed(t->bytes),
        };
        store_add_input_part(c->writer, &row);
    }
}

static void write_lines(struct collector *c, const struct input_group *p)
{
    for (size_t i = 0; i < p->line_count; i++) {
        const struct ring_line *l = &p->lines[i];
        struct input_line_row row = {
            .pid = p->pid,
            .loader = p->loader,
            .worker = p->worker,
            .id = (int64_t)i,
            .below = store_or_null(l->below),
            .part = part_names[l->part],
            .file = l->file,
            .line = l->line,
            .function = l->function,
            .samples = store_signed(l->samples),
            .ns = store_signed(l->ns),
            .read_ns = store_signed(l->read_ns),
            .decode_ns = store_signed(l->decode_ns),
            .blocked_ns = store_signed(l->blocked_ns),
            .library = l->library,
        };
        store_add_input_line(c->writer, &row);
    }
}

/* A copy of the group, with its running workers added. */
static int add_running_workers(struct collector *c, const struct input_group *p,
                               struct input_group *sum_of)
{
    memcpy(sum_of->ready, p->ready, sizeof p->ready);
    for (int i = 0; i < LEAT_PARTS_COUNT; i++) {
        struct part_total *to = &sum_of->parts[i];
        const struct part_total *from = &p->parts[i];
        if (!from->bins)
            continue;
        *to = *from;
        to->bins = mem_alloc_array(DURATION_BUCKETS, sizeof *to->bins);
        if (!to->bins)
            return -ENOMEM;
        memcpy(to->bins, from->bins, DURATION_BUCKETS * sizeof *to->bins);
    }
    if (p->line_count) {
        if (mem_reserve(&sum_of->lines, &sum_of->line_cap, p->line_count, sizeof *p->lines) < 0)
            return -ENOMEM;
        memcpy(sum_of->lines, p->lines, p->line_count * sizeof *p->lines);
        sum_of->line_count = p->line_count;
    }
    for (size_t i = 0; i < c->recording_count; i++) {
        const struct recording_process *s = c->recording[i];
        bool its = is_worker(s) ? s->input.settled && s->input.pid == p->pid &&
                                      s->input.loader == p->loader && s->input.worker == p->worker
                                : s->pid == p->pid && p->worker == OWN_PROCESS;
        if (!s->open || !its)
            continue;
        if (add_parts(sum_of, s) < 0)
            return -ENOMEM;
        add_ready(sum_of, s);
        add_lines(sum_of, s);
    }
    return 0;
}

static void write_group(struct collector *c, size_t index, bool last)
{
    struct input_group *p = c->groups[index];
    struct input_group all = {
        .pid = p->pid, .loader = p->loader, .worker = p->worker, .line_most = p->line_most};
    uint64_t n = 0;
    if (add_running_workers(c, p, &all) == 0) {
        for (int i = 0; i < LEAT_PARTS_COUNT; i++)
            n = sum(n, all.parts[i].n);
        for (int i = 0; i < REC_READY_COUNTS; i++)
            n = sum(n, all.ready[i]);
        for (size_t i = 0; i < all.line_count; i++)
            n = sum(n, all.lines[i].samples);
        if (n != p->seen)
            write_parts(c, &all);
        if ((last && n != p->written) || n - p->written > p->written / 8) {
            for (int i = 0; i < LEAT_PARTS_COUNT; i++)
                if (all.parts[i].bins)
                    write_hist(c, &all, i, merge_of(index));
            write_ready(c, &all);
            write_lines(c, &all);
            p->written = n;
        }
        p->seen = n;
    }
    clear_group(&all);
}

/* Loaders from the 16th of a process on share a slot: only their sum is known. */
static void note_shared_loaders(struct collector *c)
{
    int64_t loaders = 0, processes = 0;
    for (size_t i = 0; i < c->recording_count; i++) {
        const struct recording_process *s = c->recording[i];
        uint32_t used = s->header.loaders_used < REC_LOADERS ? s->header.loaders_used : REC_LOADERS;
        if (is_worker(s) || used < REC_PART_LOADERS || !has_input(s, REC_PART_LOADERS - 1))
            continue;
        loaders += used - (REC_PART_LOADERS - 1);
        processes++;
    }
    if (loaders)
        lost_add(
            c, "notes", loaders,
            "input_parts: loaders beyond the first %d of a process are summed as loader -1 (%lld "
            "processes)",
            REC_PART_LOADERS - 1, (long long)processes);
}

void input_write(struct collector *c, bool last)
{
    for (size_t i = 0; i < c->recording_count; i++)
        if (c->recording[i]->open)
            each_group(c->recording[i], false, only_make);
    uint64_t lines_lost = c->lines_lost;
    for (size_t i = 0; i < c->group_count; i++) {
        write_group(c, i, last);
        lines_lost = sum(lines_lost, c->groups[i]->lines_lost);
    }
    if (!last)
        return;
    note_shared_loaders(c);
    if (c->input_lost)
        lost_add(c, "samples", c->input_lost,
                 "more than %d workers and loaders: input of the others not recorded", MAX_GROUPS);
    if (lines_lost)
        lost_add(c, "samples", lines_lost > INT64_MAX ? INT64_MAX : (int64_t)lines_lost,
                 "input_lines: more than %d lines of code in a worker: the others not recorded",
                 REC_LINES);
}
