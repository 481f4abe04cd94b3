/* summary_system.c: the memory, system and processes parts of the summary: peaks and means of the
 * samples taken from outside. Sizes are bytes. */
#include "report/summary_parts.h"

#include "base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A run may start a process per second for days. The summary lists at most this many, first those
 * that recorded; run.db has all. */
enum { MOST_PROCESSES = 1000 };

/* First, last, least, greatest and sum of the known values of a series. */
struct series {
    double first, last, least, most, sum;
    size_t n;
};

static void series_add(struct series *s, double value)
{
    if (!isfinite(value))
        return;
    if (s->n == 0)
        *s = (struct series){.first = value, .least = value, .most = value};
    s->last = value;
    s->least = value < s->least ? value : s->least;
    s->most = value > s->most ? value : s->most;
    s->sum += value;
    s->n++;
}

static json_t *known(const struct series *s, double value)
{
    return json_number_or_null(s->n ? value : NAN);
}

/* Sizes and counts are whole numbers. */
static json_t *whole(const struct series *s, double value)
{
    return s->n && fabs(value) < 9e18 ? json_integer((json_int_t)value) : json_null();
}

static json_t *mean_and_max(const struct series *s)
{
    if (s->n == 0)
        return json_null();
    return json_pack("{so so}", "mean", known(s, s->sum / (double)s->n), "max", known(s, s->most));
}

static struct series rss_of(const struct facts *facts, int64_t pid)
{
    struct series rss = {0};
    size_t n;
    const struct proc_sample *sample = facts_samples(facts, pid, &n);
    for (size_t i = 0; i < n; i++)
        series_add(&rss, sample[i].rss_bytes);
    return rss;
}

/* The sum of the peaks of a rank's workers. Pages shared after fork are counted in each, as in RSS.
 */
static struct series workers_rss(const struct facts *facts, int rank)
{
    struct series all = {0};
    for (size_t i = 0; i < facts->worker_count; i++) {
        if (facts->workers[i].rank != rank)
            continue;
        struct series one = rss_of(facts, facts->workers[i].pid);
        if (one.n)
            series_add(&all, one.most);
    }
    return all;
}

/* The memory of a GPU of this run; NaN when there is none or they differ, because torch's device
 * number does not identify one of NVML's GPUs. */
static double gpu_capacity(const struct facts *facts)
{
    struct series total = {0};
    for (size_t i = 0; i < facts->gpu_sample_count; i++)
        series_add(&total, facts->gpu_samples[i].memory_total);
    return total.n && total.least == total.most ? total.most : NAN;
}

/* Peaks of one device of a rank; NULL from json_pack only when out of memory. */
static json_t *device_part(const struct facts *facts, int rank, int device)
{
    struct series allocated = {0}, reserved = {0}, split = {0}, retries = {0};
    for (size_t i = 0; i < facts->memory_sample_count; i++) {
        const struct memory_sample *m = &facts->memory_samples[i];
        if (m->rank != rank || m->device != device)
            continue;
        series_add(&allocated, m->allocated);
        series_add(&reserved, m->reserved);
        series_add(&split, m->split);
        series_add(&retries, m->retries);
    }
    double capacity = gpu_capacity(facts);
    return json_pack("{si so so so so so so so}", "device", device, "allocated_peak_bytes",
                     whole(&allocated, allocated.most), "allocated_last_bytes",
                     whole(&allocated, allocated.last), "reserved_peak_bytes",
                     whole(&reserved, reserved.most), "reserved_last_bytes",
                     whole(&reserved, reserved.last), "split_peak_bytes", whole(&split, split.most),
                     "allocation_retries", whole(&retries, retries.most), "capacity_bytes",
                     isfinite(capacity) ? json_integer((json_int_t)capacity) : json_null());
}

static json_t *devices_of_rank(const struct facts *facts, int rank)
{
    enum { MOST_DEVICES = 64 };
    unsigned long long seen = 0;
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->memory_sample_count; i++) {
        const struct memory_sample *m = &facts->memory_samples[i];
        if (m->rank != rank || m->device < 0 || m->device >= MOST_DEVICES ||
            (seen >> m->device & 1))
            continue;
        seen |= 1ull << m->device;
        if (json_array_append_new(list, device_part(facts, rank, m->device)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *summary_memory(const struct facts *facts)
{
    json_t *ranks = json_object();
    for (size_t i = 0; ranks && i < facts->rank_count; i++) {
        const struct rank_facts *rank = &facts->ranks[i];
        struct series rss = rss_of(facts, rank->pid), workers = workers_rss(facts, rank->rank);
        json_t *part = json_pack(
            "{so so so so so so}", "rss_first_bytes", whole(&rss, rss.first), "rss_last_bytes",
            whole(&rss, rss.last), "rss_peak_bytes", whole(&rss, rss.most), "workers",
            workers.n ? json_integer((json_int_t)workers.n) : json_null(), "workers_rss_peak_bytes",
            whole(&workers, workers.sum), "gpus", devices_of_rank(facts, rank->rank));
        char name[16];
        snprintf(name, sizeof name, "%d", rank->rank);
        if (json_object_set_new(ranks, name, part) < 0) {
            json_decref(ranks);
            return NULL;
        }
    }
    return json_pack("{so so}", "limit_bytes",
                     facts->memory_limit_bytes > 0 ? json_integer(facts->memory_limit_bytes)
                                                   : json_null(),
                     "ranks", ranks);
}

/* One GPU by name: the samples of several are interleaved in time. */
static json_t *gpu_part(const struct facts *facts, const char *gpu)
{
    struct series busy = {0}, used = {0}, total = {0}, hot = {0}, power = {0}, limit = {0};
    struct series clock = {0}, tx = {0}, rx = {0};
    const char *throttle = NULL;
    for (size_t i = 0; i < facts->gpu_sample_count; i++) {
        const struct gpu_sample *s = &facts->gpu_samples[i];
        if (strcmp(s->gpu, gpu) != 0)
            continue;
        series_add(&busy, s->utilization);
        series_add(&used, s->memory_used);
        series_add(&total, s->memory_total);
        series_add(&hot, s->temperature_c);
        series_add(&power, s->power_w);
        series_add(&limit, s->power_limit_w);
        series_add(&clock, s->sm_clock_mhz);
        series_add(&tx, s->pcie_tx_bytes_s);
        series_add(&rx, s->pcie_rx_bytes_s);
        throttle = *s->throttle ? s->throttle : throttle;
    }
    return json_pack("{so so so so so so so so so so so}", "gpu", summary_text(gpu), "utilization",
                     mean_and_max(&busy), "memory_used_peak_bytes", whole(&used, used.most),
                     "memory_total_bytes", whole(&total, total.most), "temperature_max_c",
                     known(&hot, hot.most), "power_mean_w",
                     known(&power, power.sum / (double)power.n), "power_limit_w",
                     known(&limit, limit.most), "throttle", summary_text(throttle),
                     "sm_clock_mean_mhz", known(&clock, clock.sum / (double)clock.n),
                     "pcie_tx_bytes_s", mean_and_max(&tx), "pcie_rx_bytes_s", mean_and_max(&rx));
}

static json_t *gpus_part(const struct facts *facts)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->gpu_sample_count; i++) {
        const char *gpu = facts->gpu_samples[i].gpu;
        size_t before = 0;
        while (before < i && strcmp(facts->gpu_samples[before].gpu, gpu) != 0)
            before++;
        if (before < i)
            continue; /* this one has its entry */
        if (json_array_append_new(list, gpu_part(facts, gpu)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static struct series sys_series(const struct facts *facts, size_t offset)
{
    struct series s = {0};
    for (size_t i = 0; i < facts->sys_sample_count; i++)
        series_add(&s, *(const double *)((const char *)&facts->sys_samples[i] + offset));
    return s;
}

json_t *summary_system(const struct facts *facts)
{
#define SERIES(name, member)                                                                       \
    struct series name = sys_series(facts, offsetof(struct sys_sample, member))
    SERIES(cpu, cpu_ratio);
    SERIES(run_cpu, run_cpu_ratio);
    SERIES(iowait, iowait_ratio);
    SERIES(total, memory_total);
    SERIES(available, memory_available);
    SERIES(swap_in, swap_in_bytes);
    SERIES(swap_out, swap_out_bytes);
    SERIES(swap_used, swap_used_bytes);
    SERIES(cpu_pressure, cpu_pressure);
    SERIES(memory_pressure, memory_pressure);
    SERIES(io_pressure, io_pressure);
    SERIES(shm_total, shm_total);
    SERIES(shm_used, shm_used);
#undef SERIES
    json_t *pressure = json_pack("{so so so}", "cpu", mean_and_max(&cpu_pressure), "memory",
                                 mean_and_max(&memory_pressure), "io", mean_and_max(&io_pressure));
    return json_pack(
        "{so so so so so so so so so so so so so so so so}", "cpus",
        facts->cpus > 0 ? json_integer(facts->cpus) : json_null(), "cpu", mean_and_max(&cpu),
        "run_cpu", mean_and_max(&run_cpu), "iowait", mean_and_max(&iowait), "pressure", pressure,
        "memory_total_bytes", whole(&total, total.most), "memory_available_least_bytes",
        whole(&available, available.least), "swap_in_bytes",
        whole(&swap_in, swap_in.last - swap_in.first), "swap_out_bytes",
        whole(&swap_out, swap_out.last - swap_out.first), "swap_used_peak_bytes",
        whole(&swap_used, swap_used.most), "shm_total_bytes", whole(&shm_total, shm_total.most),
        "shm_used_peak_bytes", whole(&shm_used, shm_used.most), "oom_kills",
        summary_integer(facts->oom_kills), "gpus", gpus_part(facts), "cuda", summary_cuda(facts),
        "gpu_clock", summary_clock(facts));
}

/* The counters of a process at its last sample, and its peaks. */
static json_t *process_part(const struct facts *facts, const struct proc_fact *proc)
{
    size_t n;
    const struct proc_sample *sample = facts_samples(facts, proc->pid, &n);
    struct series rss = {0}, threads = {0}, fds = {0};
    for (size_t i = 0; i < n; i++) {
        series_add(&rss, sample[i].rss_bytes);
        series_add(&threads, sample[i].threads >= 0 ? (double)sample[i].threads : NAN);
        series_add(&fds, sample[i].fds >= 0 ? (double)sample[i].fds : NAN);
    }
    static const struct proc_sample nothing = {NAN, NAN, NAN, NAN, NAN, -1, -1, -1,
                                               -1,  -1,  -1,  -1,  -1,  -1, -1, -1};
    const struct proc_sample *last = n ? &sample[n - 1] : &nothing;
    return json_pack(
        "{so so so so so so so so so so so so so so so so so so so so so so so}", "pid",
        summary_integer(proc->pid), "ppid", summary_integer(proc->ppid), "role",
        summary_text(process_role_names[proc->role]), "rank", summary_integer(proc->rank), "worker",
        summary_integer(proc->worker_id), "comm", summary_text(proc->comm), "command",
        summary_text(proc->command), "recorded", summary_flag(proc->recorded), "started",
        json_number_or_null(proc->started_ms), "ended", json_number_or_null(proc->ended_ms),
        "exception", summary_text(proc->exception), "missing", summary_text(proc->missing),
        "lost_records", summary_integer(proc->lost_records), "cpu_ms",
        json_number_or_null(last->cpu_ms), "rss_peak_bytes", whole(&rss, rss.most), "threads_peak",
        whole(&threads, threads.most), "fds_peak", whole(&fds, fds.most), "voluntary",
        summary_integer(last->voluntary), "involuntary", summary_integer(last->involuntary),
        "minor_faults", summary_integer(last->minor_faults), "major_faults",
        summary_integer(last->major_faults), "read_bytes", summary_integer(last->read_bytes),
        "write_bytes", summary_integer(last->write_bytes));
}

json_t *summary_processes(const struct facts *facts)
{
    json_t *list = json_array();
    for (int recorded = 1; list && recorded >= 0; recorded--)
        for (size_t i = 0; i < facts->proc_count && json_array_size(list) < MOST_PROCESSES; i++) {
            if ((facts->procs[i].recorded == 1) != recorded)
                continue;
            if (json_array_append_new(list, process_part(facts, &facts->procs[i])) < 0) {
                json_decref(list);
                return NULL;
            }
        }
    return list;
}
