/* facts.c: the run database into plain arrays: all tables except steps (facts_steps.c) and the
 * parts of making a batch (facts_input.c). These tables have few rows, or at most a few samples per
 * second. */
#include "facts_load.h"

#include "base/mem.h"
#include "base/num.h"

#include <leat/recorder.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one row, one item --------------------------------------------------------------------- */

static void fill_span(const struct span_total_row *r, struct span_fact *s)
{
    s->rank = (int)r->rank;
    FACTS_TEXT(r->name, s->name);
    s->kind = (enum span_kind)name_index(span_kind_names, s->name);
    s->n = r->n;
    s->total_ms = facts_ms(r->total_ns);
    s->max_ms = facts_ms(r->max_ns);
    s->other_ms = facts_ms(r->other_ns);
}

static void fill_loader(const struct loader_row *r, struct loader_fact *l)
{
    store_copy_numbers(STORE_loaders, r, &l->row);
    l->pid = r->pid;
    l->loader = (int)r->loader;
    l->rank = (int)facts_int(r->rank);
    l->use = (enum loader_use)name_index(loader_use_names, r->use);
    FACTS_TEXT(r->dataset, l->dataset);
    FACTS_TEXT(r->location, l->where);
    l->dataset_length = facts_int(r->dataset_length);
    l->batch_size = facts_int(r->batch_size);
    l->num_workers = facts_int(r->num_workers);
    l->prefetch_factor = facts_int(r->prefetch_factor);
    l->pin_memory = facts_int(r->pin_memory);
    l->persistent_workers = facts_int(r->persistent_workers);
    l->iterable = facts_int(r->iterable);
    l->own = facts_int(r->own);
    l->engine_readable = facts_int(r->engine_readable);
    l->iterations = facts_int(r->iterations);
    l->batches = facts_int(r->batches);
    l->samples = facts_int(r->samples);
    l->wait_ms = facts_ms(r->wait_ns);
    l->first_wait_ms = facts_ms(r->first_wait_ns);
    l->background_ms = facts_ms(r->background_ns);
}

/* The first word: "npy x.npy: 10 samples ..." */
static enum engine_source source_kind_of(const char *source)
{
    char word[16];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(source, " "), source);
    return (enum engine_source)name_index(engine_source_names, word);
}

static void fill_engine(const struct engine_row *r, struct engine_fact *e)
{
    store_copy_numbers(STORE_engines, r, &e->row);
    e->pid = r->pid;
    e->loader = (int)r->loader;
    FACTS_TEXT(r->source, e->source);
    e->source_kind = source_kind_of(e->source);
    e->order = (enum engine_order)name_index(engine_order_names, r->ordering);
    e->threads = r->threads;
    e->cores = r->cores;
    e->ahead = r->ahead;
    e->memory_bytes = facts_real(r->memory_bytes);
    e->batches = facts_real(r->batches);
    e->samples = facts_real(r->samples);
    e->bytes = facts_real(r->bytes);
    e->waits = facts_real(r->waits);
    e->wait_ms = facts_ms(r->wait_ns);
    e->help_ms = facts_ms(r->help_ns);
    e->order_ms = facts_ms(r->order_ns);
    e->read_ms = facts_ms(r->read_ns);
    e->layout_ms = facts_ms(r->layout_ns);
    e->idle_ms = facts_ms(r->idle_ns);
}

static void fill_worker(const struct worker_row *r, struct worker_fact *w)
{
    store_copy_numbers(STORE_workers, r, &w->row);
    w->pid = r->pid;
    w->parent_pid = facts_int(r->parent_pid);
    w->rank = (int)facts_int(r->rank);
    w->worker_id = (int)facts_int(r->worker_id);
    w->loader = (int)facts_int(r->loader);
    w->batches = r->batches;
    w->samples = facts_int(r->samples);
    w->busy_ms = facts_ms(r->busy_ns);
    w->alive_ms = facts_ms(r->last_ns) - facts_ms(r->first_ns);
    w->max_ms = facts_ms(r->max_ns);
}

static void fill_process(const struct process_row *r, struct proc_fact *p)
{
    store_copy_numbers(STORE_processes, r, &p->row);
    p->pid = r->pid;
    p->ppid = facts_int(r->ppid);
    p->role = (enum process_role)name_index(process_role_names, r->role);
    p->rank = (int)facts_int(r->rank);
    p->worker_id = (int)facts_int(r->worker_id);
    FACTS_TEXT(r->comm, p->comm);
    FACTS_TEXT(r->command, p->command);
    p->started_ms = facts_ms(r->started_ns);
    p->ended_ms = facts_ms(r->ended_ns);
    p->recorded = (int)r->recorded;
    FACTS_TEXT(r->missing, p->missing);
    FACTS_TEXT(r->exception, p->exception);
    p->lost_records = r->lost_records == STORE_NULL ? 0 : r->lost_records;
}

static void fill_proc_sample(const struct proc_sample_row *r, struct proc_sample *s)
{
    s->t_ms = facts_ms(r->t_ns);
    s->pid = r->pid;
    s->cpu_ms = facts_ms(r->cpu_ns);
    s->rss_bytes = facts_real(r->rss_bytes);
    s->shared_bytes = facts_real(r->shared_bytes);
    s->run_delay_ms = facts_ms(r->run_delay_ns);
    s->threads = facts_int(r->threads);
    s->fds = facts_int(r->fds);
    s->fd_limit = facts_int(r->fd_limit);
    s->voluntary = facts_int(r->voluntary);
    s->involuntary = facts_int(r->involuntary);
    s->minor_faults = facts_int(r->minor_faults);
    s->major_faults = facts_int(r->major_faults);
    s->read_bytes = facts_int(r->read_bytes);
    s->write_bytes = facts_int(r->write_bytes);
    s->read_calls = facts_int(r->read_calls);
}

static void fill_sys_sample(const struct sys_sample_row *r, struct sys_sample *s)
{
    s->t_ms = facts_ms(r->t_ns);
    s->cpu_ratio = r->cpu_ratio;
    s->run_cpu_ratio = r->run_cpu_ratio;
    s->iowait_ratio = r->iowait_ratio;
    s->steal_ratio = r->steal_ratio;
    s->memory_total = facts_real(r->memory_total);
    s->memory_available = facts_real(r->memory_available);
    s->swap_in_bytes = facts_real(r->swap_in_bytes);
    s->swap_out_bytes = facts_real(r->swap_out_bytes);
    s->swap_used_bytes = facts_real(r->swap_used_bytes);
    s->cpu_pressure = r->cpu_pressure;
    s->memory_pressure = r->memory_pressure;
    s->io_pressure = r->io_pressure;
    s->shm_total = facts_real(r->shm_total);
    s->shm_used = facts_real(r->shm_used);
}

static void fill_gpu_sample(const struct gpu_sample_row *r, struct gpu_sample *s)
{
    s->t_ms = facts_ms(r->t_ns);
    FACTS_TEXT(r->gpu, s->gpu);
    FACTS_TEXT(r->throttle, s->throttle);
    s->utilization = r->utilization;
    s->memory_used = facts_real(r->memory_used);
    s->memory_total = facts_real(r->memory_total);
    s->temperature_c = facts_real(r->temperature_c);
    s->temperature_limit_c = facts_real(r->temperature_limit_c);
    s->power_w = r->power_w;
    s->power_limit_w = r->power_limit_w;
    s->sm_clock_mhz = facts_real(r->sm_clock_mhz);
    s->pcie_tx_bytes_s = facts_real(r->pcie_tx_bytes_s);
    s->pcie_rx_bytes_s = facts_real(r->pcie_rx_bytes_s);
}

static void fill_memory_sample(const struct memory_sample_row *r, struct memory_sample *s)
{
    s->t_ms = facts_ms(r->t_ns);
    s->rank = (int)r->rank;
    s->device = (int)r->device;
    s->step = r->step;
    s->allocated = facts_real(r->allocated);
    s->reserved = facts_real(r->reserved);
    s->split = facts_real(r->split);
    s->retries = facts_real(r->retries);
}

static void fill_cuda_call(const struct cuda_call_row *r, struct cuda_call *c)
{
    c->pid = r->pid;
    c->class = (enum leat_cuda_class)name_index(cuda_class_names, r->class);
    c->n = facts_real(r->n);
    c->ms = facts_ms(r->ns);
    c->bytes = facts_real(r->bytes);
}

static void fill_gpu_phase(const struct gpu_phase_row *r, struct gpu_phase *p)
{
    p->pid = r->pid;
    p->phase = (enum leat_clock_phase)name_index(clock_phase_names, r->phase);
    p->device_ms = facts_ms(r->device_ns);
    p->idle_ms = facts_ms(r->idle_ns);
    p->hidden_ms = facts_ms(r->hidden_ns);
}

static void fill_lost(const struct lost_row *r, struct lost_fact *l)
{
    FACTS_TEXT(r->what, l->what);
    l->n = facts_int(r->n);
    FACTS_TEXT(r->why, l->why);
}

FACTS_LOADER(span_totals, span_total, "ORDER BY rank, name", fill_span, spans, span_count)
FACTS_LOADER(loaders, loader, "ORDER BY rank, pid, loader", fill_loader, loaders, loader_count)
FACTS_LOADER(engines, engine, "ORDER BY pid, loader", fill_engine, engines, engine_count)
FACTS_LOADER(workers, worker, "ORDER BY rank, worker_id, pid", fill_worker, workers, worker_count)
FACTS_LOADER(processes, process, "ORDER BY pid", fill_process, procs, proc_count)
FACTS_LOADER(proc_samples, proc_sample, "ORDER BY pid, t_ns", fill_proc_sample, proc_samples,
             proc_sample_count)
FACTS_LOADER(sys_samples, sys_sample, "ORDER BY t_ns", fill_sys_sample, sys_samples,
             sys_sample_count)
FACTS_LOADER(gpu_samples, gpu_sample, "ORDER BY gpu, t_ns", fill_gpu_sample, gpu_samples,
             gpu_sample_count)
FACTS_LOADER(memory_samples, memory_sample, "ORDER BY rank, device, t_ns", fill_memory_sample,
             memory_samples, memory_sample_count)
FACTS_LOADER(cuda_calls, cuda_call, "WHERE span = 'steps' ORDER BY pid, ns DESC", fill_cuda_call,
             cuda_calls, cuda_call_count)
FACTS_LOADER(gpu_clock, gpu_phase, "ORDER BY pid, idle_ns DESC", fill_gpu_phase, gpu_phases,
             gpu_phase_count)
FACTS_LOADER(lost, lost, "ORDER BY what, why", fill_lost, lost, lost_count)

/* ---- the lines that copy or wait ----------------------------------------------------------- */

/* A row: what one line did by calls of one class. */
struct line_calls {
    struct cuda_line line; /* names it; steps, ms and bytes are of this class */
    enum leat_cuda_class class;
    double n;
};

static void fill_line_calls(const struct cuda_line_row *r, struct line_calls *c)
{
    c->line.pid = r->pid;
    FACTS_TEXT(r->file, c->line.file);
    c->line.line = r->line;
    FACTS_TEXT(r->function, c->line.function);
    c->line.ms = facts_ms(r->ns);
    c->line.bytes = facts_real(r->bytes);
    c->line.steps = facts_real(r->steps);
    c->n = facts_real(r->n);
    c->class = (enum leat_cuda_class)name_index(cuda_class_names, r->class);
}

static int same_line(const struct cuda_line *a, const struct cuda_line *b)
{
    return a->pid == b->pid && a->line == b->line && strcmp(a->file, b->file) == 0 &&
           strcmp(a->function, b->function) == 0;
}

/* Joins the `count` classes of one line. A class that the line calls in less than half of its steps
 * does not decide its kind: only its waits are counted, in rare_wait_ms. A copy of pageable memory
 * always waits; one of pinned memory is waited for when there is no non_blocking=True. Reading a
 * value back is a copy and a wait. */
static struct cuda_line join_classes(const struct line_calls *c, size_t count)
{
    struct cuda_line l = c->line;
    double pageable = 0, pinned = 0, back = 0, waits = 0;
    l.ms = l.bytes = 0;
    for (size_t i = 1; i < count; i++)
        l.steps = fmax(l.steps, c[i].line.steps);
    for (size_t i = 0; i < count; i++) {
        int often = c[i].line.steps * 2 >= l.steps;
        int is_wait = c[i].class == LEAT_CUDA_SYNC || c[i].class == LEAT_CUDA_EVENT_SYNC;
        l.wait_ms += is_wait ? c[i].line.ms : 0;
        l.rare_wait_ms += is_wait && !often ? c[i].line.ms : 0;
        if (!often)
            continue;
        pageable += c[i].class == LEAT_CUDA_H2D_PAGEABLE ? c[i].n : 0;
        pinned += c[i].class == LEAT_CUDA_H2D_PINNED ? c[i].n : 0;
        back += c[i].class == LEAT_CUDA_D2H_PAGEABLE ? c[i].n : 0;
        waits += is_wait ? c[i].n : 0;
        l.ms += c[i].line.ms;
        l.bytes += c[i].line.bytes;
    }
    l.kind = pageable > 0              ? CUDA_LINE_PAGEABLE_COPY
             : pinned > 0 && waits > 0 ? CUDA_LINE_BLOCKING_COPY
             : back > 0 || waits > 0   ? CUDA_LINE_WAIT
                                       : CUDA_LINE_NEITHER;
    l.n = pageable > 0 || (pinned > 0 && waits > 0) ? pageable + pinned : fmax(back, waits);
    return l;
}

static int longest_first(const void *a, const void *b)
{
    const struct cuda_line *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->ms != y->ms)
        return x->ms > y->ms ? -1 : 1;
    int files = strcmp(x->file, y->file);
    return files ? files : (x->line > y->line) - (x->line < y->line);
}

static int load_cuda_lines(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    struct line_calls *calls = NULL;
    size_t count = 0, capacity = 0, lines = 0;
    struct cuda_line_row row;
    struct store_cursor rows;
    int more =
        store_open_cuda_lines(reader, "ORDER BY pid, file, line, function, class", &rows, err);
    while (more >= 0 && (more = store_next_cuda_line(&rows, &row)) > 0) {
        more = mem_reserve(&calls, &capacity, count + 1, sizeof *calls);
        if (more < 0)
            break;
        memset(&calls[count], 0, sizeof *calls);
        fill_line_calls(&row, &calls[count++]);
    }
    store_cursor_done(&rows);
    if (more == 0 && count && !(f->cuda_lines = mem_alloc_array(count, sizeof *f->cuda_lines)))
        more = -ENOMEM;
    for (size_t i = 0, end; more == 0 && i < count; i = end) {
        for (end = i + 1; end < count && same_line(&calls[i].line, &calls[end].line);)
            end++;
        f->cuda_lines[lines++] = join_classes(calls + i, end - i);
    }
    f->cuda_line_count = lines;
    if (lines)
        qsort(f->cuda_lines, lines, sizeof *f->cuda_lines, longest_first);
    mem_free(calls);
    return more;
}

static int load_tables(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    static int (*const loaders[])(struct store_reader *, struct facts *, struct leat_err *) = {
        load_span_totals,  load_loaders,     load_engines,     load_workers,        load_processes,
        load_proc_samples, load_sys_samples, load_gpu_samples, load_memory_samples, load_cuda_calls,
        load_gpu_clock,    load_cuda_lines,  load_lost};
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof loaders / sizeof *loaders; i++)
        r = loaders[i](reader, f, err);
    return r;
}

/* The first sample of a pid of at least `pid`. */
static size_t first_sample(const struct facts *facts, int64_t pid)
{
    size_t low = 0, high = facts->proc_sample_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (facts->proc_samples[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct proc_sample *facts_samples(const struct facts *facts, int64_t pid, size_t *ret_count)
{
    size_t from = first_sample(facts, pid), to = first_sample(facts, pid + 1);
    *ret_count = to - from;
    return to > from ? &facts->proc_samples[from] : NULL;
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

static int add_meta(struct facts *f, const char *key, const char *value)
{
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

static int read_meta(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    struct store_cursor rows;
    struct meta_row row;
    int more = store_open_meta(reader, "ORDER BY key", &rows, err);
    while (more >= 0 && (more = store_next_meta(&rows, &row)) > 0)
        more = add_meta(f, row.key, row.value);
    store_cursor_done(&rows);
    return more;
}

/* The versions are those of the lowest rank that knows them. */
static int read_versions(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    struct store_cursor rows;
    struct process_row row;
    int more = store_open_processes(
        reader, "WHERE recorded = 1 ORDER BY rank IS NULL, rank, role = 'worker', pid", &rows, err);
    while (more >= 0 && (more = store_next_process(&rows, &row)) > 0) {
        more = keep_first(&f->python, row.python);
        if (more == 0)
            more = keep_first(&f->torch, row.torch);
        if (row.world_size > f->world_size) /* STORE_NULL is the least number */
            f->world_size = (int)row.world_size;
    }
    store_cursor_done(&rows);
    return more;
}

static int load_meta(struct store_reader *reader, struct facts *f, struct leat_err *err)
{
    f->exit_status = f->signal = -1;
    f->oom_kills = f->cpus = f->memory_limit_bytes = f->max_steps = -1;
    f->world_size = 1;
    int r = read_meta(reader, f, err);
    if (r >= 0)
        r = read_versions(reader, f, err);
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
            mem_free(r->folded_bins[p]);
    }
    void *const owned[] = {f->run_name,       f->command,      f->started_at,  f->node,
                           f->leat,           f->ended,        f->python,      f->torch,
                           f->ranks,          f->spans,        f->loaders,     f->workers,
                           f->procs,          f->proc_samples, f->sys_samples, f->gpu_samples,
                           f->memory_samples, f->lost,         f->logs_dir,    f->input_parts,
                           f->input_bins,     f->input_ready,  f->input_lines, f->engines,
                           f->cuda_calls,     f->cuda_lines,   f->gpu_phases};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
    mem_free(f);
}
