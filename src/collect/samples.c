/* samples.c: when processes, the machine and GPUs are sampled, and the rows of a sample.
 *
 * Five times per second in the first half minute, in which a run starts up and short runs end; once
 * per second up to an hour; every five seconds after that. Sampling takes at most 0.4 % of one CPU,
 * so that all of leat stays below 1 %: a pause is at least COST_FACTOR times as long as the sample
 * took. Beyond 200 000 rows the pause doubles with every further 200 000, so that 64 processes
 * sampled for a month stay below two million; the store thins them further.
 */
#include "collect/collector_internal.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { ROWS_PER_HALVING = 200000 };

static uint64_t period_ns(const struct collector *c, uint64_t now, uint64_t cost)
{
    uint64_t age = collector_relative(c, now);
    uint64_t period = age < 30 * NS_PER_S     ? 200 * NS_PER_MS
                      : age < 3600 * NS_PER_S ? NS_PER_S
                                              : 5 * NS_PER_S;
    for (uint64_t rows = c->rows; rows > ROWS_PER_HALVING && period < 600 * NS_PER_S;
         rows -= ROWS_PER_HALVING)
        period *= 2;
    return period > COST_FACTOR * cost ? period : COST_FACTOR * cost;
}

/* The cgroup counts its own kills, the kernel all. A training may move itself into another cgroup
 * (of a batch system), so the larger of the two differences is taken. */
static void read_oom_kills(const struct collector *c, int64_t ret_kills[2])
{
    struct cgroup_info cgroup;
    struct sys_info sys;
    ret_kills[0] = cgroup_read(c->proc_root, &cgroup) == 0 ? cgroup.oom_kills : -1;
    ret_kills[1] = sys_read(c->proc_root, &sys) == 0 ? sys.oom_kills : -1;
}

static void store_oom_kills(struct collector *c)
{
    int64_t now[2], most = -1;
    read_oom_kills(c, now);
    for (int i = 0; i < 2; i++)
        if (c->oom_kills_before[i] >= 0 && now[i] - c->oom_kills_before[i] > most)
            most = now[i] - c->oom_kills_before[i];
    if (most >= 0)
        store_set_metaf(c->writer, "oom_kills", "%lld", (long long)most);
}

void samples_begin(struct collector *c)
{
    struct cgroup_info cgroup;
    read_oom_kills(c, c->oom_kills_before);
    if (cgroup_read(c->proc_root, &cgroup) < 0)
        return;
    c->cpus = cgroup.cpus;
    store_set_metaf(c->writer, "cpus", "%g", cgroup.cpus);
    if (cgroup.memory_limit_bytes >= 0)
        store_set_metaf(c->writer, "memory_limit_bytes", "%lld",
                        (long long)cgroup.memory_limit_bytes);
}

void samples_done(struct collector *c)
{
    nvml_close(c->nvml);
}

/* ---- processes ---------------------------------------------------------------------------- */

static void set_command(struct collector *c, struct tree_process *s)
{
    char text[1024];
    if (proc_command(c->proc_root, s->pid, text, sizeof text) < 0 || !text[0])
        return;
    char *copy = mem_strdup(text);
    if (!copy)
        return;
    mem_free(s->command);
    s->command = copy;
}

static void end_process(struct collector *c, struct tree_process *s, uint64_t now)
{
    s->ended_ns = collector_relative(c, now);
    tree_write_process(c, recording_process_find(c, s->pid), s);
}

static void sample_process(struct collector *c, struct tree_process *s, uint64_t now)
{
    struct proc_info p;
    int result = proc_read(c->proc_root, s->pid, &p);
    if (result < 0 || p.start_ticks != s->start_ticks) {
        end_process(c, s, now);
        return;
    }
    bool new_name = strcmp(s->comm, p.comm) != 0;
    if (new_name || !s->command) {
        snprintf(s->comm, sizeof s->comm, "%s", p.comm);
        set_command(c, s);
        s->map_reads = 0;
    }
    s->ppid = p.ppid;
    lost_check_process(c, s);
    if (new_name)
        tree_write_process(c, recording_process_find(c, s->pid), s);
    if (p.cpu_ns > s->cpu_ns) {
        c->run_cpu_ns += p.cpu_ns - s->cpu_ns;
        s->cpu_ns = p.cpu_ns;
    }
    struct proc_sample_row row = {
        .t_ns = store_signed(collector_relative(c, now)),
        .pid = p.pid,
        .cpu_ns = store_or_null(p.cpu_ns),
        .rss_bytes = store_or_null(p.rss_bytes),
        .threads = store_or_null(p.threads),
        .fds = store_or_null(p.fds),
        .voluntary = store_or_null(p.voluntary),
        .involuntary = store_or_null(p.involuntary),
        .minor_faults = store_or_null(p.minor_faults),
        .major_faults = store_or_null(p.major_faults),
        .read_bytes = store_or_null(p.read_bytes),
        .write_bytes = store_or_null(p.write_bytes),
        .read_calls = store_or_null(p.read_calls),
        .shared_bytes = store_or_null(p.shared_bytes),
        .fd_limit = store_or_null(p.fd_limit),
        .run_delay_ns = store_or_null(p.run_delay_ns),
    };
    store_add_proc_sample(c->writer, &row);
    c->rows++;
}

/* a/b of two differences; NaN where one is not known. */
static double ratio(int64_t now, int64_t before, double whole)
{
    if (now < 0 || before < 0 || now < before || !(whole > 0))
        return (double)NAN;
    double r = (double)(now - before) / whole;
    return r > 1 ? 1 : r;
}

/* A quota of nearly all CPUs counts as none: the clock and the kernel's ticks differ a little. */
#define QUOTA_SHARE 0.95

/* The share of the CPU time that the run may have which was used, by all programs and by the run.
 * With a quota (cgroup) below the number of CPUs, idle CPUs count only up to what the quota has
 * left. */
static void cpu_ratios(const struct collector *c, const struct sys_info *s, uint64_t now,
                       double *ret_all, double *ret_run)
{
    const struct sys_info *b = &c->last_sys;
    double all = s->all_ns >= 0 && b->all_ns >= 0 ? (double)(s->all_ns - b->all_ns) : 0;
    double quota = c->cpus * (double)(now - c->last_sys_ns), run = (double)c->run_cpu_ns;
    double whole = quota > 0 && quota < QUOTA_SHARE * all ? quota : all;
    *ret_all = ratio(s->busy_ns, b->busy_ns, all);
    *ret_run = ratio(c->run_cpu_ns, 0, whole);
    if (whole < all) {
        double idle = (1 - *ret_all) * all, left = run < whole ? whole - run : 0;
        *ret_all = 1 - (idle < left ? idle : left) / whole;
    }
}

static void sample_system(struct collector *c, uint64_t now)
{
    struct sys_info s;
    if (sys_read(c->proc_root, &s) < 0)
        return;
    const struct sys_info *b = &c->last_sys;
    if (c->sampled) {
        double all = s.all_ns >= 0 && b->all_ns >= 0 ? (double)(s.all_ns - b->all_ns) : 0;
        double us = (double)(now - c->last_sys_ns) / NS_PER_US, cpu, run_cpu;
        cpu_ratios(c, &s, now, &cpu, &run_cpu);
        struct sys_sample_row row = {
            .t_ns = store_signed(collector_relative(c, now)),
            .cpu_ratio = cpu,
            .run_cpu_ratio = run_cpu,
            .iowait_ratio = ratio(s.iowait_ns, b->iowait_ns, all),
            .memory_total = store_or_null(s.memory_total),
            .memory_available = store_or_null(s.memory_available),
            .swap_in_bytes = store_or_null(s.swap_in_bytes),
            .swap_out_bytes = store_or_null(s.swap_out_bytes),
            .swap_used_bytes = store_or_null(s.swap_used_bytes),
            .cpu_pressure = ratio(s.cpu_stall_us, b->cpu_stall_us, us),
            .memory_pressure = ratio(s.memory_stall_us, b->memory_stall_us, us),
            .io_pressure = ratio(s.io_stall_us, b->io_stall_us, us),
            .shm_total = store_or_null(s.shm_total),
            .shm_used = store_or_null(s.shm_used),
            .steal_ratio = ratio(s.steal_ns, b->steal_ns, all),
        };
        store_add_sys_sample(c->writer, &row);
    }
    c->run_cpu_ns = 0;
    c->last_sys = s;
    c->last_sys_ns = now;
    c->sampled = true;
}

/* ---- GPUs --------------------------------------------------------------------------------- */

static bool names_device(const struct collector *c, const char *uuid)
{
    for (size_t i = 0; i < c->recording_count; i++)
        if (uuid[0] && strstr(c->recording[i]->header.devices, uuid))
            return true;
    return false;
}

/* A GPU belongs to the run from when a process of it names it or holds a context on it. */
static void find_gpus(struct collector *c)
{
    int64_t pids[1024];
    size_t count = 0;
    for (size_t i = 0; i < c->tree_count && count < 1024; i++)
        if (!c->tree[i].ended_ns)
            pids[count++] = c->tree[i].pid;
    int gpus = nvml_count(c->nvml);
    for (int i = 0; i < gpus && i < 64; i++) {
        struct gpu_info g;
        if (c->gpus_used & 1ull << i)
            continue;
        if (nvml_uses(c->nvml, i, pids, count) ||
            (nvml_read(c->nvml, i, &g) == 0 && names_device(c, g.uuid)))
            c->gpus_used |= 1ull << i;
    }
}

static void sample_gpu(struct collector *c, int index, uint64_t now)
{
    struct gpu_info g;
    if (nvml_read(c->nvml, index, &g) < 0)
        return;
    struct gpu_sample_row row = {
        .t_ns = store_signed(collector_relative(c, now)),
        .gpu = g.uuid,
        .utilization = g.utilization,
        .memory_used = store_or_null(g.memory_used),
        .memory_total = store_or_null(g.memory_total),
        .temperature_c = store_or_null(g.temperature_c),
        .temperature_limit_c = store_or_null(g.temperature_limit_c),
        .power_w = g.power_w,
        .power_limit_w = g.power_limit_w,
        .sm_clock_mhz = store_or_null(g.sm_clock_mhz),
        .throttle = g.throttle,
        .pcie_tx_bytes_s = store_or_null(g.pcie_tx_bytes_s),
        .pcie_rx_bytes_s = store_or_null(g.pcie_rx_bytes_s),
    };
    store_add_gpu_sample(c->writer, &row);
    c->rows++;
}

/* With the first sample, not before the training starts: it can take seconds. */
static void open_nvml(struct collector *c)
{
    if (c->nvml_tried)
        return;
    c->nvml_tried = true;
    if (nvml_open(&c->nvml, NULL) < 0)
        c->nvml = NULL;
}

static void sample_gpus(struct collector *c, uint64_t now)
{
    if (!c->nvml)
        return;
    if (now >= c->next_gpu_search_ns) {
        c->next_gpu_search_ns = now + 5 * NS_PER_S;
        find_gpus(c);
    }
    for (int i = 0; i < 64; i++)
        if (c->gpus_used & 1ull << i)
            sample_gpu(c, i, now);
}

/* ---- the rate ----------------------------------------------------------------------------- */

void samples_run(struct collector *c, uint64_t now)
{
    if (now < c->next_sample_ns)
        return;
    uint64_t begin = clock_cpu_ns();
    tree_update(c, now); /* has a rate of its own */
    uint64_t tree_ns = clock_cpu_ns() - begin;
    tree_track_recording(c, now);
    for (size_t i = 0; i < c->tree_count; i++)
        if (!c->tree[i].ended_ns)
            sample_process(c, &c->tree[i], now);
    sample_system(c, now);
    uint64_t cost = clock_cpu_ns() - begin - tree_ns;
    open_nvml(c); /* happens once: not charged to the sample */
    begin = clock_cpu_ns();
    sample_gpus(c, now);
    cost += clock_cpu_ns() - begin;
    c->next_sample_ns = now + period_ns(c, now, cost);
}

void samples_finish(struct collector *c)
{
    uint64_t now = clock_now_ns();
    c->next_sample_ns = c->next_tree_ns = 0;
    samples_run(c, now);
    store_oom_kills(c);
}
