/* facts_input.c: what happens inside the input path: parts of making a batch, their distribution,
 * and the lines of code. Rows are per loader and worker; rules use sums over workers. Quantiles
 * over workers come from merged bins and are exact up to the width of a bin. */
#include "facts_load.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* A part unknown to this version of leat gets no rows. */
static enum leat_part part_of(const char *text)
{
    return (enum leat_part)name_index(part_names, text);
}

static void fill_part(const struct input_part_row *r, struct input_part *p)
{
    p->pid = r->pid;
    p->loader = (int)r->loader;
    p->worker = (int)r->worker;
    p->part = part_of(r->part);
    p->n = r->n;
    p->total_ms = facts_ms(r->total_ns);
    p->max_ms = facts_ms(r->max_ns);
    p->bytes = facts_real(r->bytes);
}

static void fill_bin(const struct input_bin_row *r, struct input_bin *b)
{
    b->pid = r->pid;
    b->loader = (int)r->loader;
    b->worker = (int)r->worker;
    b->part = part_of(r->part);
    b->bucket = facts_bucket(r->bin);
    b->n = r->n;
}

static void fill_ready(const struct input_ready_row *from, struct input_ready *r)
{
    r->pid = from->pid;
    r->loader = (int)from->loader;
    r->worker = (int)from->worker;
    r->batches = from->batches;
    r->n = from->n;
}

static double known_ms(int64_t cell_ns)
{
    return cell_ns == STORE_NULL ? 0 : facts_ms(cell_ns);
}

static void fill_line(const struct input_line_row *r, struct input_line *l)
{
    l->pid = r->pid;
    l->loader = (int)r->loader;
    l->worker = (int)r->worker;
    l->id = (int)r->id;
    l->below = (int)facts_int(r->below);
    l->part = part_of(r->part);
    FACTS_TEXT(r->file, l->file);
    l->line = (int)r->line;
    FACTS_TEXT(r->function, l->function);
    l->samples = r->samples;
    l->ms = facts_ms(r->ns);
    l->read_ms = known_ms(r->read_ns);
    l->decode_ms = known_ms(r->decode_ns);
    l->blocked_ms = known_ms(r->blocked_ns);
    l->library = r->library == 1;
}

FACTS_LOADER(input_parts, input_part, "ORDER BY pid, loader, worker, part", fill_part, input_parts,
             input_part_count)
FACTS_LOADER(input_hist, input_bin, "ORDER BY pid, loader, worker, part, bin", fill_bin, input_bins,
             input_bin_count)
FACTS_LOADER(input_ready, input_ready, "ORDER BY pid, loader, worker", fill_ready, input_ready,
             input_ready_count)
FACTS_LOADER(input_lines, input_line, "ORDER BY pid, loader, worker, id", fill_line, input_lines,
             input_line_count)

int facts_load_input(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    int r = load_input_parts(reader, f, err);
    if (r >= 0)
        r = load_input_hist(reader, f, err);
    if (r >= 0)
        r = load_input_ready(reader, f, err);
    if (r >= 0)
        r = load_input_lines(reader, f, err);
    return r;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Rows whose loader is unknown belong to the only loader, if there is just one. */
static int is_only_loader(const struct facts *f, int64_t pid, int loader)
{
    int others = 0;
    for (size_t i = 0; i < f->loader_count; i++)
        others += f->loaders[i].pid == pid && f->loaders[i].loader != loader;
    return others == 0;
}

struct wanted {
    int64_t pid;
    int loader, worker, with_unknown;
};

static struct wanted want(const struct facts *f, int64_t pid, int loader, int worker)
{
    return (struct wanted){pid, loader, worker, is_only_loader(f, pid, loader)};
}

static int matches(const struct wanted *w, int64_t pid, int loader, int worker)
{
    if (pid != w->pid || (loader != w->loader && !(loader == -1 && w->with_unknown)))
        return 0;
    return w->worker == FACTS_ALL || worker == w->worker ||
           (w->worker == FACTS_WORKERS && worker != FACTS_PROCESS);
}

/* Rows that the queries above have sorted by pid, loader and worker. A run of many epochs has tens
 * of thousands of them, and each worker asks for its own. */
struct sorted_rows {
    const void *items;
    size_t count, size;
    struct row_key (*key_of)(const void *item);
};
struct row_key {
    int64_t pid;
    int loader, worker;
};

static struct row_key key_of_part(const void *item)
{
    const struct input_part *p = item;
    return (struct row_key){p->pid, p->loader, p->worker};
}

static struct row_key key_of_bin(const void *item)
{
    const struct input_bin *b = item;
    return (struct row_key){b->pid, b->loader, b->worker};
}

static struct row_key key_of_ready(const void *item)
{
    const struct input_ready *r = item;
    return (struct row_key){r->pid, r->loader, r->worker};
}

static int is_before(struct row_key a, struct row_key b)
{
    return a.pid != b.pid         ? a.pid < b.pid
           : a.loader != b.loader ? a.loader < b.loader
                                  : a.worker < b.worker;
}

/* The first row that is not before `key`. */
static size_t first_from(const struct sorted_rows *rows, struct row_key key)
{
    size_t low = 0, high = rows->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_before(rows->key_of((const char *)rows->items + middle * rows->size), key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The rows of a loader: of one worker, or of all that `matches` chooses from. */
static void range_of(const struct sorted_rows *rows, const struct wanted *w, int loader,
                     size_t *ret_from, size_t *ret_to)
{
    int one = w->worker != FACTS_ALL && w->worker != FACTS_WORKERS;
    struct row_key first = {w->pid, loader, one ? w->worker : INT_MIN};
    struct row_key next = {w->pid, one ? loader : loader + 1, one ? w->worker + 1 : INT_MIN};
    *ret_from = first_from(rows, first);
    *ret_to = first_from(rows, next);
}

/* How many ranges hold the rows of `w`: those of the loader, and those of an unknown one. */
static int ranges(const struct wanted *w)
{
    return w->with_unknown && w->loader != -1 ? 2 : 1;
}

/* Returns whether there is any. */
static int merge_bins(const struct facts *f, const struct wanted *w, enum leat_part part,
                      uint64_t merged[DURATION_BUCKETS])
{
    const struct sorted_rows rows = {f->input_bins, f->input_bin_count, sizeof *f->input_bins,
                                     key_of_bin};
    int any = 0;
    memset(merged, 0, DURATION_BUCKETS * sizeof *merged);
    for (int k = 0; k < ranges(w); k++) {
        size_t i, to;
        range_of(&rows, w, k ? -1 : w->loader, &i, &to);
        for (; i < to; i++) {
            const struct input_bin *b = &f->input_bins[i];
            if (b->part != part || b->n <= 0 || !matches(w, b->pid, b->loader, b->worker))
                continue;
            merged[b->bucket] += (uint64_t)b->n;
            any = 1;
        }
    }
    return any;
}

size_t facts_part(const struct facts *f, int64_t pid, int loader, int worker, enum leat_part part,
                  struct part_stats *ret)
{
    const struct sorted_rows rows = {f->input_parts, f->input_part_count, sizeof *f->input_parts,
                                     key_of_part};
    size_t read = 0;
    struct wanted w = want(f, pid, loader, worker);
    struct part_stats s = {0, 0, NAN, NAN, NAN, NAN, NAN, 0};
    uint64_t merged[DURATION_BUCKETS];
    for (int k = 0; k < ranges(&w); k++) {
        size_t i, to;
        range_of(&rows, &w, k ? -1 : w.loader, &i, &to);
        for (read += to - i; i < to; i++) {
            const struct input_part *p = &f->input_parts[i];
            if (p->part != part || p->n <= 0 || !matches(&w, p->pid, p->loader, p->worker))
                continue;
            s.n += (double)p->n;
            s.total += p->total_ms;
            s.bytes += p->bytes > 0 ? p->bytes : 0;
            s.max = isnan(s.max) || p->max_ms > s.max ? p->max_ms : s.max;
        }
    }
    if (s.n > 0)
        s.mean = s.total / s.n;
    if (s.n > 0 && merge_bins(f, &w, part, merged)) {
        s.median = duration_histogram_quantile_ns(merged, 0.5) / 1e6;
        s.p90 = duration_histogram_quantile_ns(merged, 0.9) / 1e6;
        s.p99 = duration_histogram_quantile_ns(merged, 0.99) / 1e6;
    }
    *ret = s;
    return read;
}

int facts_part_quantiles(const struct facts *f, int64_t pid, int loader, int worker,
                         enum leat_part part, size_t n, double *ret_values)
{
    struct wanted w = want(f, pid, loader, worker);
    uint64_t merged[DURATION_BUCKETS];
    if (!merge_bins(f, &w, part, merged))
        return 0;
    for (size_t i = 0; i < n; i++)
        ret_values[i] = duration_histogram_quantile_ns(merged, ((double)i + 0.5) / (double)n) / 1e6;
    return 1;
}

void facts_ready(const struct facts *f, int64_t pid, int loader, int worker,
                 struct ready_stats *ret)
{
    enum { COUNTS = 256 }; /* counts of ready batches that the recorder distinguishes */
    const struct sorted_rows rows = {f->input_ready, f->input_ready_count, sizeof *f->input_ready,
                                     key_of_ready};
    struct wanted w = want(f, pid, loader, worker);
    double requests[COUNTS] = {0}, batches = 0, before = 0;
    *ret = (struct ready_stats){0, NAN, NAN, NAN};
    for (int k = 0; k < ranges(&w); k++) {
        size_t i, to;
        range_of(&rows, &w, k ? -1 : w.loader, &i, &to);
        for (; i < to; i++) {
            const struct input_ready *r = &f->input_ready[i];
            if (r->n <= 0 || r->batches < 0 || r->batches >= COUNTS ||
                !matches(&w, r->pid, r->loader, r->worker))
                continue;
            requests[r->batches] += (double)r->n;
            ret->requests += (double)r->n;
            batches += (double)r->n * (double)r->batches;
        }
    }
    if (!(ret->requests > 0))
        return;
    ret->mean = batches / ret->requests;
    ret->none_share = requests[0] / ret->requests;
    for (int i = 0; i < COUNTS && isnan(ret->median); i++)
        if (2 * (before += requests[i]) >= ret->requests)
            ret->median = i;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The line that called `l`: an id is unique among those of the same worker. */
static const struct input_line *caller(const struct facts *f, const struct input_line *l)
{
    for (size_t i = 0; l->below >= 0 && i < f->input_line_count; i++) {
        const struct input_line *other = &f->input_lines[i];
        if (other->id == l->below && other->pid == l->pid && other->loader == l->loader &&
            other->worker == l->worker)
            return other;
    }
    return NULL;
}

static int same_place(const struct input_line *a, const struct input_line *b)
{
    if (!a || !b)
        return a == b;
    return a->line == b->line && a->part == b->part && strcmp(a->file, b->file) == 0;
}

static int costlier_first(const void *a, const void *b)
{
    const struct line_fact *x = a, *y = b;
    if (x->ms != y->ms)
        return x->ms < y->ms ? 1 : -1;
    return (x->line > y->line) - (x->line < y->line);
}

int facts_lines(const struct facts *f, int64_t pid, int loader, struct line_fact **ret_lines,
                size_t *ret_count)
{
    struct line_fact *lines = mem_alloc_array(f->input_line_count + 1, sizeof *lines);
    struct wanted w = want(f, pid, loader, FACTS_ALL);
    size_t n = 0;
    if (!lines)
        return -ENOMEM;
    for (size_t i = 0; i < f->input_line_count; i++) {
        const struct input_line *l = &f->input_lines[i], *below = caller(f, l);
        if (l->pid != pid || (loader >= 0 && !matches(&w, l->pid, l->loader, l->worker)))
            continue;
        size_t at = 0;
        while (at < n && !(same_place(lines[at].line, l) && same_place(lines[at].below, below)))
            at++;
        if (at == n)
            lines[n++] = (struct line_fact){.line = l, .below = below};
        lines[at].ms += l->ms;
        lines[at].read_ms += l->read_ms;
        lines[at].decode_ms += l->decode_ms;
        lines[at].blocked_ms += l->blocked_ms;
    }
    qsort(lines, n, sizeof *lines, costlier_first);
    *ret_lines = lines;
    *ret_count = n;
    return 0;
}
