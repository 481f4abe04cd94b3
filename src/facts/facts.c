/* facts.c: the run database into plain arrays. Steps have a file of their own (facts_steps.c); here
 * is everything that is small: a few rows, or at most a few samples a second.
 *
 * Each table is one SELECT, one row function and one array; all go through facts_load_table. Text
 * in the database is foreign (commands, exceptions): it is cut to the size of its place.
 */
#include "facts_load.h"

#include "base/mem.h"
#include "base/num.h"

#include <leat/recorder.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- columns ------------------------------------------------------------------------------- */

static int64_t int_or(const struct store_row *row, int column, int64_t otherwise)
{
    return store_column_is_null(row, column) ? otherwise : store_column_int(row, column);
}

static double ms(const struct store_row *row, int column)
{
    return store_column_real(row, column) / 1e6;
}

static void text(const struct store_row *row, int column, char *ret_text, size_t bytes)
{
    const char *value = store_column_text(row, column);
    snprintf(ret_text, bytes, "%s", value ? value : "");
}
#define TEXT(row, column, place) text(row, column, place, sizeof(place))

/* ---- a table into an array ----------------------------------------------------------------- */

struct table {
    void *items;
    size_t count, capacity, size;
    void (*fill)(const struct store_row *row, void *item);
};

static int add_row(const struct store_row *row, void *context)
{
    struct table *t = context;
    if (mem_reserve(&t->items, &t->capacity, t->count + 1, t->size) < 0)
        return -ENOMEM;
    char *item = (char *)t->items + t->count * t->size;
    memset(item, 0, t->size);
    t->fill(row, item);
    t->count++;
    return 0;
}

int facts_load_table(struct store_reader *reader, const char *sql, size_t size,
                     void (*fill)(const struct store_row *row, void *item), void *items,
                     size_t *ret_count, struct leat_err *err)
{
    struct table t = {.size = size, .fill = fill};
    int result = store_select(reader, sql, NULL, 0, add_row, &t, err);
    memcpy(items, &t.items, sizeof t.items);
    *ret_count = t.count;
    return result;
}

static void fill_span(const struct store_row *row, void *item)
{
    struct span_fact *s = item;
    s->rank = (int)int_or(row, 0, -1);
    TEXT(row, 1, s->name);
    s->kind = (enum span_kind)name_index(span_kind_names, s->name);
    s->n = store_column_int(row, 2);
    s->total_ms = ms(row, 3);
    s->max_ms = ms(row, 4);
    s->other_ms = store_column_is_null(row, 5) ? 0 : ms(row, 5);
}

static void fill_loader(const struct store_row *row, void *item)
{
    struct loader_fact *l = item;
    l->pid = int_or(row, 0, -1);
    l->loader = (int)int_or(row, 1, -1);
    l->rank = (int)int_or(row, 2, -1);
    l->use = (enum loader_use)name_index(loader_use_names, store_column_text(row, 3));
    TEXT(row, 4, l->dataset);
    l->dataset_length = int_or(row, 5, -1);
    TEXT(row, 6, l->where);
    l->batch_size = int_or(row, 7, -1);
    l->num_workers = int_or(row, 8, -1);
    l->prefetch_factor = int_or(row, 9, -1);
    l->pin_memory = int_or(row, 10, -1);
    l->persistent_workers = int_or(row, 11, -1);
    l->iterable = int_or(row, 12, -1);
    l->iterations = int_or(row, 13, -1);
    l->batches = int_or(row, 14, -1);
    l->samples = int_or(row, 15, -1);
    l->wait_ms = ms(row, 16);
    l->first_wait_ms = ms(row, 17);
    l->background_ms = ms(row, 18);
    l->own = int_or(row, 19, -1);
    l->engine_readable = int_or(row, 20, -1);
}

static void fill_worker(const struct store_row *row, void *item)
{
    struct worker_fact *w = item;
    w->pid = int_or(row, 0, -1);
    w->parent_pid = int_or(row, 1, -1);
    w->rank = (int)int_or(row, 2, -1);
    w->worker_id = (int)int_or(row, 3, -1);
    w->batches = int_or(row, 4, -1);
    w->samples = int_or(row, 5, -1);
    w->busy_ms = ms(row, 6);
    w->alive_ms = ms(row, 8) - ms(row, 7);
    w->max_ms = ms(row, 9);
    w->loader = (int)int_or(row, 10, -1);
}

static void fill_proc(const struct store_row *row, void *item)
{
    struct proc_fact *p = item;
    p->pid = int_or(row, 0, -1);
    p->ppid = int_or(row, 1, -1);
    p->role = (enum process_role)name_index(process_role_names, store_column_text(row, 2));
    p->rank = (int)int_or(row, 3, -1);
    p->worker_id = (int)int_or(row, 4, -1);
    TEXT(row, 5, p->comm);
    TEXT(row, 6, p->command);
    p->started_ms = ms(row, 7);
    p->ended_ms = ms(row, 8);
    p->recorded = (int)int_or(row, 9, 0);
    TEXT(row, 10, p->missing);
    TEXT(row, 11, p->exception);
    p->lost_records = int_or(row, 12, 0);
}

static void fill_proc_sample(const struct store_row *row, void *item)
{
    struct proc_sample *s = item;
    s->t_ms = ms(row, 0);
    s->pid = int_or(row, 1, -1);
    s->cpu_ms = ms(row, 2);
    s->rss_bytes = store_column_real(row, 3);
    s->threads = int_or(row, 4, -1);
    s->fds = int_or(row, 5, -1);
    s->voluntary = int_or(row, 6, -1);
    s->involuntary = int_or(row, 7, -1);
    s->minor_faults = int_or(row, 8, -1);
    s->major_faults = int_or(row, 9, -1);
    s->read_bytes = int_or(row, 10, -1);
    s->write_bytes = int_or(row, 11, -1);
    s->shared_bytes = store_column_real(row, 12);
    s->fd_limit = int_or(row, 13, -1);
    s->run_delay_ms = ms(row, 14);
    s->read_calls = int_or(row, 15, -1);
}

/* The first word: "npy x.npy: 10 samples ..." */
static enum engine_source source_kind_of(const char *source)
{
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(source, " "), source);
    return (enum engine_source)name_index(engine_source_names, word);
}

static void fill_engine(const struct store_row *row, void *item)
{
    struct engine_fact *e = item;
    double *const counts[] = {&e->memory_bytes, &e->batches, &e->samples, &e->bytes, &e->waits};
    double *const times[] = {&e->wait_ms, &e->help_ms,   &e->order_ms,
                             &e->read_ms, &e->layout_ms, &e->idle_ms};
    e->pid = int_or(row, 0, -1);
    e->loader = (int)int_or(row, 1, -1);
    TEXT(row, 2, e->source);
    e->source_kind = source_kind_of(e->source);
    e->order = (enum engine_order)name_index(engine_order_names, store_column_text(row, 3));
    e->threads = int_or(row, 4, -1);
    e->cores = int_or(row, 5, -1);
    e->ahead = int_or(row, 6, -1);
    for (int i = 0; i < 5; i++)
        *counts[i] = store_column_real(row, 7 + i);
    for (int i = 0; i < 6; i++)
        *times[i] = ms(row, 12 + i);
}

static void fill_sys_sample(const struct store_row *row, void *item)
{
    struct sys_sample *s = item;
    double *const places[] = {&s->cpu_ratio,       &s->run_cpu_ratio,    &s->iowait_ratio,
                              &s->memory_total,    &s->memory_available, &s->swap_in_bytes,
                              &s->swap_out_bytes,  &s->swap_used_bytes,  &s->cpu_pressure,
                              &s->memory_pressure, &s->io_pressure,      &s->shm_total,
                              &s->shm_used,        &s->steal_ratio};
    s->t_ms = ms(row, 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        *places[i] = store_column_real(row, (int)i + 1);
}

static void fill_gpu_sample(const struct store_row *row, void *item)
{
    struct gpu_sample *s = item;
    double *const places[] = {&s->utilization,   &s->memory_used,         &s->memory_total,
                              &s->temperature_c, &s->temperature_limit_c, &s->power_w,
                              &s->power_limit_w};
    s->t_ms = ms(row, 0);
    TEXT(row, 1, s->gpu);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        *places[i] = store_column_real(row, (int)i + 2);
    TEXT(row, 9, s->throttle);
    s->sm_clock_mhz = store_column_real(row, 10);
    s->pcie_tx_bytes_s = store_column_real(row, 11);
    s->pcie_rx_bytes_s = store_column_real(row, 12);
}

static void fill_cuda_call(const struct store_row *row, void *item)
{
    struct cuda_call *c = item;
    c->pid = int_or(row, 0, -1);
    c->class = (enum leat_cuda_class)name_index(cuda_class_names, store_column_text(row, 1));
    c->n = store_column_real(row, 2);
    c->ms = ms(row, 3);
    c->bytes = store_column_real(row, 4);
}

/* A copy of pageable memory waits, also where it need not by its arguments; one of pinned memory is
 * waited for when there is no non_blocking=True. Reading a value back is a copy and a wait. */
static void fill_cuda_line(const struct store_row *row, void *item)
{
    struct cuda_line *l = item;
    double pageable = store_column_real(row, 4), pinned = store_column_real(row, 5);
    double back = store_column_real(row, 6), waits = store_column_real(row, 7);
    l->pid = int_or(row, 0, -1);
    TEXT(row, 1, l->file);
    l->line = int_or(row, 2, 0);
    TEXT(row, 3, l->function);
    l->kind = pageable > 0              ? CUDA_LINE_PAGEABLE_COPY
              : pinned > 0 && waits > 0 ? CUDA_LINE_BLOCKING_COPY
              : back > 0 || waits > 0   ? CUDA_LINE_WAIT
                                        : CUDA_LINE_NEITHER;
    l->n = pageable > 0 || (pinned > 0 && waits > 0) ? pageable + pinned : fmax(back, waits);
    l->ms = ms(row, 8);
    l->bytes = store_column_real(row, 9);
    l->steps = store_column_real(row, 10);
    l->wait_ms = ms(row, 11);
    l->seldom_wait_ms = ms(row, 12);
}

static void fill_gpu_phase(const struct store_row *row, void *item)
{
    struct gpu_phase *p = item;
    p->pid = int_or(row, 0, -1);
    p->phase = (enum leat_clock_phase)name_index(clock_phase_names, store_column_text(row, 1));
    p->device_ms = ms(row, 2);
    p->idle_ms = ms(row, 3);
    p->hidden_ms = ms(row, 4);
}

static void fill_memory_sample(const struct store_row *row, void *item)
{
    struct memory_sample *s = item;
    s->t_ms = ms(row, 0);
    s->rank = (int)int_or(row, 1, -1);
    s->device = (int)int_or(row, 2, -1);
    s->step = int_or(row, 3, -1);
    s->allocated = store_column_real(row, 4);
    s->reserved = store_column_real(row, 5);
    s->split = store_column_real(row, 6);
    s->retries = store_column_real(row, 7);
}

static void fill_lost(const struct store_row *row, void *item)
{
    struct lost_fact *l = item;
    TEXT(row, 0, l->what);
    l->n = int_or(row, 1, -1);
    TEXT(row, 2, l->why);
}

static int load_tables(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
#define LOAD(sql, fill, items, count)                                                              \
    facts_load_table(reader, sql, sizeof *f->items, fill, &f->items, &f->count, err)
    int r = LOAD("SELECT rank, name, n, total_ns, max_ns, other_ns FROM span_totals"
                 " ORDER BY rank, name",
                 fill_span, spans, span_count);
    if (r >= 0)
        r = LOAD("SELECT pid, loader, rank, use, dataset, dataset_length, location, batch_size,"
                 " num_workers, prefetch_factor, pin_memory, persistent_workers, iterable,"
                 " iterations, batches, samples, wait_ns, first_wait_ns, background_ns,"
                 " own, engine_readable FROM loaders ORDER BY rank, pid, loader",
                 fill_loader, loaders, loader_count);
    if (r >= 0)
        r = LOAD("SELECT pid, loader, source, ordering, threads, cores, ahead, memory_bytes,"
                 " batches, samples, bytes, waits, wait_ns, help_ns, order_ns, read_ns, layout_ns,"
                 " idle_ns FROM engines ORDER BY pid, loader",
                 fill_engine, engines, engine_count);
    if (r >= 0)
        r = LOAD("SELECT pid, parent_pid, rank, worker_id, batches, samples, busy_ns, first_ns,"
                 " last_ns, max_ns, loader FROM workers ORDER BY rank, worker_id, pid",
                 fill_worker, workers, worker_count);
    if (r >= 0)
        r = LOAD("SELECT pid, ppid, role, rank, worker_id, comm, command, started_ns, ended_ns,"
                 " recorded, missing, exception, lost_records FROM processes ORDER BY pid",
                 fill_proc, procs, proc_count);
    if (r >= 0)
        r = LOAD("SELECT t_ns, pid, cpu_ns, rss_bytes, threads, fds, voluntary, involuntary,"
                 " minor_faults, major_faults, read_bytes, write_bytes, shared_bytes, fd_limit,"
                 " run_delay_ns, read_calls"
                 " FROM proc_samples ORDER BY pid, t_ns",
                 fill_proc_sample, proc_samples, proc_sample_count);
    if (r >= 0)
        r = LOAD("SELECT t_ns, cpu_ratio, run_cpu_ratio, iowait_ratio, memory_total,"
                 " memory_available, swap_in_bytes, swap_out_bytes, swap_used_bytes, cpu_pressure,"
                 " memory_pressure, io_pressure, shm_total, shm_used, steal_ratio FROM sys_samples"
                 " ORDER BY t_ns",
                 fill_sys_sample, sys_samples, sys_sample_count);
    if (r >= 0)
        r = LOAD("SELECT t_ns, gpu, utilization, memory_used, memory_total, temperature_c,"
                 " temperature_limit_c, power_w, power_limit_w, throttle, sm_clock_mhz,"
                 " pcie_tx_bytes_s, pcie_rx_bytes_s FROM gpu_samples"
                 " ORDER BY gpu, t_ns",
                 fill_gpu_sample, gpu_samples, gpu_sample_count);
    if (r >= 0)
        r = LOAD("SELECT pid, class, n, ns, bytes FROM cuda_calls WHERE span = 'steps'"
                 " ORDER BY pid, ns DESC",
                 fill_cuda_call, cuda_calls, cuda_call_count);
    if (r >= 0)
        /* What a line does in few of its steps only is not what it is there for. */
        r = LOAD("SELECT pid, file, line, function, sum(often * n * (class = 'h2d_pageable')),"
                 " sum(often * n * (class = 'h2d_pinned')),"
                 " sum(often * n * (class = 'd2h_pageable')), sum(often * n * waits),"
                 " sum(often * ns), sum(often * bytes), max(steps), sum(ns * waits),"
                 " sum(ns * waits * (1 - often)) FROM (SELECT *, class IN ('sync', 'event_sync') AS"
                 " waits, steps * 2 >= max(steps) OVER (PARTITION BY pid, file, line, function) AS"
                 " often FROM cuda_lines)"
                 " GROUP BY pid, file, line, function ORDER BY pid, sum(often * ns) DESC",
                 fill_cuda_line, cuda_lines, cuda_line_count);
    if (r >= 0)
        r = LOAD("SELECT pid, phase, device_ns, idle_ns, hidden_ns FROM gpu_clock"
                 " ORDER BY pid, idle_ns DESC",
                 fill_gpu_phase, gpu_phases, gpu_phase_count);
    if (r >= 0)
        r = LOAD("SELECT t_ns, rank, device, step, allocated, reserved, split, retries"
                 " FROM memory_samples"
                 " ORDER BY rank, device, t_ns",
                 fill_memory_sample, memory_samples, memory_sample_count);
    if (r >= 0)
        r = LOAD("SELECT what, n, why FROM lost ORDER BY what, why", fill_lost, lost, lost_count);
#undef LOAD
    return r;
}

const struct engine_fact *facts_engine(const struct facts *facts, int64_t pid, int loader)
{
    for (size_t i = 0; i < facts->engine_count; i++)
        if (facts->engines[i].pid == pid && facts->engines[i].loader == loader)
            return &facts->engines[i];
    return NULL;
}

/* ---- meta ---------------------------------------------------------------------------------- */

static int64_t number(const char *value, int64_t otherwise)
{
    int64_t n = otherwise;
    if (value)
        (void)num_parse_i64(value, &n); /* leaves n alone on failure */
    return n;
}

static int add_meta(const struct store_row *row, void *context)
{
    struct facts *f = context;
    const char *key = store_column_text(row, 0), *value = store_column_text(row, 1);
    const struct {
        const char *key;
        char **place;
    } texts[] = {
        {"run_name",   &f->run_name  },
        {"command",    &f->command   },
        {"started_at", &f->started_at},
        {"node",       &f->node      },
        {"logs_dir",   &f->logs_dir  },
        {"leat",       &f->leat      },
        {"ended",      &f->ended     }
    };
    if (!key || !value)
        return 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(key, texts[i].key) == 0) {
            mem_free(*texts[i].place);
            *texts[i].place = mem_strdup(value);
            return *texts[i].place ? 0 : -ENOMEM;
        }
    if (strcmp(key, "duration_ns") == 0)
        f->duration_ms = (double)number(value, 0) / 1e6;
    else if (strcmp(key, "exit_status") == 0)
        f->exit_status = (int)number(value, -1);
    else if (strcmp(key, "signal") == 0)
        f->signal = (int)number(value, -1);
    else if (strcmp(key, "oom_kills") == 0)
        f->oom_kills = number(value, -1);
    else if (strcmp(key, "cpus") == 0) {
        double cpus = -1; /* a quota may give 1.5 of them; rules count whole ones */
        if (num_parse_f64(value, &cpus) == 0 && cpus > 0)
            f->cpus = cpus < 1 ? 1 : (int64_t)cpus;
    } else if (strcmp(key, "memory_limit_bytes") == 0)
        f->memory_limit_bytes = number(value, -1);
    else if (strcmp(key, "max_steps") == 0)
        f->max_steps = number(value, -1);
    return 0;
}

static int keep_first(char **place, const char *value)
{
    if (*place || !value || !*value)
        return 0;
    *place = mem_strdup(value);
    return *place ? 0 : -ENOMEM;
}

/* The versions are those of the lowest rank that knows them. */
static int add_versions(const struct store_row *row, void *context)
{
    struct facts *f = context;
    int r = keep_first(&f->python, store_column_text(row, 0));
    if (r == 0)
        r = keep_first(&f->torch, store_column_text(row, 1));
    int64_t world = int_or(row, 2, 1);
    if (world > f->world_size)
        f->world_size = (int)world;
    return r;
}

static int load_meta(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    f->exit_status = f->signal = -1;
    f->oom_kills = f->cpus = f->memory_limit_bytes = f->max_steps = -1;
    f->world_size = 1;
    int r =
        store_select(reader, "SELECT key, value FROM meta ORDER BY key", NULL, 0, add_meta, f, err);
    if (r >= 0)
        r = store_select(reader,
                         "SELECT python, torch, world_size FROM processes WHERE recorded = 1"
                         " ORDER BY rank IS NULL, rank, role = 'worker', pid",
                         NULL, 0, add_versions, f, err);
    char **const texts[] = {&f->run_name, &f->command, &f->started_at, &f->node,    &f->leat,
                            &f->ended,    &f->python,  &f->torch,      &f->logs_dir};
    for (size_t i = 0; r >= 0 && i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i] && !(*texts[i] = mem_strdup("")))
            r = -ENOMEM;
    return r;
}

int facts_load(struct store_reader *reader, struct facts **ret_facts, struct leat_err *err)
{
    struct facts *f = mem_alloc(sizeof *f);
    int r = f ? 0 : -ENOMEM;
    if (r == 0)
        r = load_meta(reader, f, err);
    if (r >= 0)
        r = load_tables(reader, f, err);
    if (r >= 0)
        r = facts_load_input(reader, f, err);
    if (r >= 0)
        r = facts_load_steps(reader, f, err);
    for (size_t i = 0; r >= 0 && i < f->rank_count; i++)
        r = facts_compute_stats(&f->ranks[i]);
    if (r >= 0)
        r = facts_choose_typical(f);
    if (r < 0) {
        facts_free(f);
        return r == -ENOMEM ? err_set(err, r, "There is not enough memory to read the run.") : r;
    }
    *ret_facts = f;
    return 0;
}

void facts_free(struct facts *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->rank_count; i++) {
        struct rank_facts *r = &f->ranks[i];
        mem_free(r->step);
        mem_free(r->end_ms);
        mem_free(r->wall_ms);
        mem_free(r->weight);
        mem_free(r->flags);
        mem_free(r->stats);
        for (int p = 0; p < PHASES; p++)
            mem_free(r->phase_ms[p]);
        for (int p = 0; p <= PHASES; p++)
            mem_free(r->bins[p]);
    }
    void *const owned[] = {f->run_name,       f->command,      f->started_at,  f->node,
                           f->leat,           f->ended,        f->python,      f->torch,
                           f->ranks,          f->spans,        f->loaders,     f->workers,
                           f->procs,          f->proc_samples, f->sys_samples, f->gpu_samples,
                           f->memory_samples, f->lost,         f->logs_dir,    f->input_parts,
                           f->input_bins,     f->input_lines,  f->engines,     f->cuda_calls,
                           f->cuda_lines,     f->gpu_phases};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    mem_free(f);
}
