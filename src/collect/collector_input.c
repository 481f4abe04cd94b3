/* collector_input.c: what happens inside the input path, from the totals in the processes' memory
 * to input_parts, input_hist, input_ready and input_lines.
 *
 * A row belongs to a place: one loader of one process, and one of its workers, or the process
 * itself (worker -1), or its workers whose number is not known (-2). Workers that are not
 * persistent are new processes every epoch, so a place is the sum of all who ever held it:
 *
 *     dead workers ──absorbed once──► place (kept in memory) ─┐
 *     living ones ──read anew each time───────────────────────┴─► rows, replaced
 *
 * Thus the tables grow with loaders and workers, and not with epochs. What bounds them:
 *   - PLACES_MOST places; a worker beyond them is counted in `lost`.
 *   - bins: the first places have those of step_hist, 3 % wide; the more places there are, the more
 *     bins of a later one are merged into their middle (merge_of).
 *   - lines: REC_LINES of an early place, LINES_LATER of a later one.
 * Parts are written whenever rows are; bins and lines, which are many, only when the counts have
 * grown by an eighth, and at the end. So their cost falls as the run goes on, and a leat that is
 * killed has missed an eighth of them at most.
 *
 * Who works for whom. The place of a worker is settled once and stays: a row that was written must
 * not be left behind when the answer changes.
 */
#include "collect/collector_internal.h"

#include "base/mem.h"

#include <string.h>

enum {
    PLACES_MOST = 1024,
    PLACES_FINE = 64, /* with all bins and lines: 8 ranks of 7 workers */
    LINES_LATER = 24,
    OWN = -1,        /* worker: the process itself */
    NUMBERLESS = -2, /* worker: those whose number is not known, together */
    UNTOLD = -1      /* loader */
};

struct part_total {
    uint64_t n, total_ns, max_ns, bytes;
    uint64_t *bins; /* owned, DURATION_BUCKETS; NULL: it never happened */
};

struct input_place {
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

/* ---- places ------------------------------------------------------------------------------- */

static struct input_place *find_place(struct collector *c, int64_t pid, int loader, int worker)
{
    for (size_t i = 0; i < c->place_count; i++) {
        struct input_place *p = c->places[i];
        if (p->pid == pid && p->loader == loader && p->worker == worker)
            return p;
    }
    return NULL;
}

static struct input_place *make_place(struct collector *c, int64_t pid, int loader, int worker)
{
    struct input_place *p = find_place(c, pid, loader, worker);
    if (p || c->place_count >= PLACES_MOST)
        return p;
    if (mem_reserve(&c->places, &c->place_cap, c->place_count + 1, sizeof(struct input_place *)) <
            0 ||
        !(p = mem_alloc(sizeof *p)))
        return NULL;
    p->pid = pid;
    p->loader = loader;
    p->worker = worker;
    p->line_most = c->place_count < PLACES_FINE ? REC_LINES : LINES_LATER;
    c->places[c->place_count++] = p;
    return p;
}

/* Empties a place but for its name, and what it has written. */
static void clear_place(struct input_place *p)
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
    for (size_t i = 0; i < c->place_count; i++) {
        clear_place(c->places[i]);
        mem_free(c->places[i]);
    }
    mem_free(c->places);
    c->places = NULL;
    c->place_count = c->place_cap = 0;
}

/* ---- adding up ---------------------------------------------------------------------------- */

/* What the memory says may be scribbled: sums stop at the top instead of starting anew. */
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

/* Adds a line whose `below` is an index of this place. Returns its index, or -1: there is no room,
 * and its samples are counted. */
static int add_line(struct input_place *p, const struct ring_line *line)
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

/* The last slot is shared by all later loaders, which cannot be told apart: it is nobody's from the
 * start, so that no row is left behind when a second one comes. */
static int loader_of_slot(uint32_t slot)
{
    return slot == REC_PART_LOADERS - 1 ? UNTOLD : (int)slot;
}

/* Of a worker everything is of the one loader it works for; of other processes only what their own
 * number for this loader says. */
static bool slot_is_of(const struct input_place *p, uint32_t slot)
{
    return p->worker != OWN || loader_of_slot(slot) == p->loader;
}

static int add_parts(struct input_place *to, const struct speaker *s)
{
    struct ring_part part;
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        for (uint32_t i = 0; i < LEAT_PARTS_COUNT; i++)
            if (slot_is_of(to, slot) && ring_reader_part(&s->reader, slot, i, &part) &&
                add_part(&to->parts[i], &part) < 0)
                return -ENOMEM;
    return 0;
}

static void add_ready(struct input_place *to, const struct speaker *s)
{
    uint64_t requests[REC_READY_COUNTS];
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        if (slot_is_of(to, slot) && ring_reader_ready(&s->reader, slot, requests))
            for (int i = 0; i < REC_READY_COUNTS; i++)
                to->ready[i] = sum(to->ready[i], requests[i]);
}

static void add_lines(struct input_place *to, const struct speaker *s)
{
    int place_of[REC_LINES]; /* of a line of the process, among those of the place */
    struct ring_line line;
    for (uint32_t id = 0; id < REC_LINES; id++) {
        place_of[id] = -1;
        if (!ring_reader_line(&s->reader, id, &line))
            continue;
        uint32_t slot = line.loader < REC_PART_LOADERS ? line.loader : REC_PART_LOADERS - 1;
        if (!slot_is_of(to, slot))
            continue;
        bool of_user = line.below < 0;
        line.loader = 0; /* the place says it */
        line.below = of_user ? -1 : place_of[line.below];
        if (!of_user && line.below < 0) /* whose caller had no room: it would look like a user's */
            to->lines_lost = sum(to->lines_lost, line.samples);
        else
            place_of[id] = add_line(to, &line);
    }
}

/* ---- who works for whom ------------------------------------------------------------------- */

static bool makes_batches(const struct speaker *s)
{
    return s->header.role == LEAT_ROLE_WORKER;
}

/* The only process that has loaders, or NULL. */
static struct speaker *only_owner(struct collector *c)
{
    struct speaker *found = NULL;
    for (size_t i = 0; i < c->speaker_count; i++) {
        struct speaker *s = c->speakers[i];
        if (makes_batches(s) || s->header.loaders_used == 0)
            continue;
        if (found)
            return NULL;
        found = s;
    }
    return found;
}

/* The process that has the worker's loader. A parent that has loaders is it, also before its first
 * step; a fork server has none. */
struct speaker *input_master(const struct speaker *s)
{
    struct speaker *parent = speaker_find(s->collector, s->header.ppid);
    if (parent && parent != s && !makes_batches(parent) && parent->header.loaders_used > 0)
        return parent;
    struct speaker *master = speaker_master(s);
    return master ? master : only_owner(s->collector);
}

/* The one loader of a process that has workers, if it is one. A process that has ended has left the
 * answer: its workers may be heard of after it. */
static int only_loader_with_workers(const struct speaker *s)
{
    struct leat_loader_info info;
    int found = UNTOLD;
    if (!s->open)
        return s->input.loader;
    for (uint32_t id = 0; ring_reader_loader(&s->reader, id, &info); id++) {
        if (info.num_workers <= 0)
            continue;
        if (found != UNTOLD)
            return UNTOLD;
        found = (int)id;
    }
    return found;
}

static bool has_input(const struct speaker *s, uint32_t slot)
{
    return s->header.parts_used[slot] != 0 || s->header.ready_used >> slot & 1;
}

static bool has_any_input(const struct speaker *s)
{
    bool any = s->header.lines_used > 0;
    for (uint32_t slot = 0; slot < REC_PART_LOADERS && !any; slot++)
        any = has_input(s, slot);
    return any;
}

/* Settles a worker's place, at the latest when it ends: then whoever is its parent is its master.
 */
static bool settle(struct speaker *s, bool ends)
{
    if (s->input.settled)
        return true;
    const struct speaker *master = input_master(s);
    int said = s->header.worker_loader;
    if (!ends && (!master || (said < 0 && !has_any_input(s))))
        return false;
    s->input.pid = master ? master->pid : s->header.ppid;
    s->input.loader = said >= 0 && said < REC_LOADERS ? said
                      : master                        ? only_loader_with_workers(master)
                                                      : UNTOLD;
    s->input.worker = s->header.worker_id >= 0 ? s->header.worker_id : NUMBERLESS;
    s->input.settled = true;
    return true;
}

int input_loader(struct speaker *s)
{
    return makes_batches(s) && settle(s, false) ? s->input.loader : UNTOLD;
}

/* Calls `visit` for each place that this process adds to; NULL: there was no room for it. */
static void each_place(struct speaker *s, bool ends,
                       void (*visit)(struct input_place *, struct speaker *))
{
    struct collector *c = s->collector;
    if (!has_any_input(s))
        return;
    if (makes_batches(s)) {
        if (settle(s, ends))
            visit(make_place(c, s->input.pid, s->input.loader, s->input.worker), s);
        return;
    }
    for (uint32_t slot = 0; slot < REC_PART_LOADERS; slot++)
        if (has_input(s, slot))
            visit(make_place(c, s->pid, loader_of_slot(slot), OWN), s);
}

static void just_make(struct input_place *p, struct speaker *s)
{
    (void)p;
    (void)s;
}

static void absorb(struct input_place *p, struct speaker *s)
{
    if (!p || add_parts(p, s) < 0) {
        s->collector->input_lost++;
        return;
    }
    add_ready(p, s);
    add_lines(p, s);
}

void input_end(struct speaker *s)
{
    each_place(s, true, absorb);
    if (!makes_batches(s))
        s->input.loader = only_loader_with_workers(s);
    s->collector->lines_lost = sum(s->collector->lines_lost, s->header.lines_lost);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* How many buckets are written as one, for the i-th place: 3, 12 and 36 % wide. The middle one of
 * them stands for all. */
static uint32_t merge_of(size_t i)
{
    return i < PLACES_FINE ? 1 : i < PLACES_FINE * 4 ? 4 : 12;
}

static uint32_t merged_bucket(uint32_t bucket, uint32_t merge)
{
    if (merge == 1)
        return bucket;
    uint32_t middle = bucket / merge * merge + merge / 2;
    return middle < DURATION_BUCKETS ? middle : DURATION_BUCKETS - 1;
}

static void write_hist(struct collector *c, const struct input_place *p, enum leat_part part,
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

static void write_ready(struct collector *c, const struct input_place *p)
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

static void write_parts(struct collector *c, const struct input_place *p)
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

static void write_lines(struct collector *c, const struct input_place *p)
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

/* The place with its living workers, in a copy. */
static int with_the_living(struct collector *c, const struct input_place *p,
                           struct input_place *sum_of)
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
    for (size_t i = 0; i < c->speaker_count; i++) {
        const struct speaker *s = c->speakers[i];
        bool its = makes_batches(s)
                       ? s->input.settled && s->input.pid == p->pid &&
                             s->input.loader == p->loader && s->input.worker == p->worker
                       : s->pid == p->pid && p->worker == OWN;
        if (!s->open || !its)
            continue;
        if (add_parts(sum_of, s) < 0)
            return -ENOMEM;
        add_ready(sum_of, s);
        add_lines(sum_of, s);
    }
    return 0;
}

static void write_place(struct collector *c, size_t index, bool last)
{
    struct input_place *p = c->places[index];
    struct input_place all = {
        .pid = p->pid, .loader = p->loader, .worker = p->worker, .line_most = p->line_most};
    uint64_t n = 0;
    if (with_the_living(c, p, &all) == 0) {
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
    clear_place(&all);
}

/* Loaders from the 16th of a process on share a slot: what they take is known only together. */
static void say_shared(struct collector *c)
{
    int64_t loaders = 0, processes = 0;
    for (size_t i = 0; i < c->speaker_count; i++) {
        const struct speaker *s = c->speakers[i];
        uint32_t used = s->header.loaders_used < REC_LOADERS ? s->header.loaders_used : REC_LOADERS;
        if (makes_batches(s) || used < REC_PART_LOADERS || !has_input(s, REC_PART_LOADERS - 1))
            continue;
        loaders += used - (REC_PART_LOADERS - 1);
        processes++;
    }
    if (loaders)
        lost_add(c, "notes", loaders,
                 "input_parts: loaders beyond the first %d of a process (%lld of them) have their "
                 "times together, as loader -1",
                 REC_PART_LOADERS - 1, (long long)processes);
}

void input_write(struct collector *c, bool last)
{
    for (size_t i = 0; i < c->speaker_count; i++)
        if (c->speakers[i]->open)
            each_place(c->speakers[i], false, just_make);
    uint64_t lines_lost = c->lines_lost;
    for (size_t i = 0; i < c->place_count; i++) {
        write_place(c, i, last);
        lines_lost = sum(lines_lost, c->places[i]->lines_lost);
    }
    if (!last)
        return;
    say_shared(c);
    if (c->input_lost)
        lost_add(c, "samples", c->input_lost,
                 "processes whose input could not be followed: more than %d workers and loaders",
                 PLACES_MOST);
    if (lines_lost)
        lost_add(c, "samples", lines_lost > INT64_MAX ? INT64_MAX : (int64_t)lines_lost,
                 "input_lines: of lines of code beyond the %d of a worker that have a place",
                 REC_LINES);
}
