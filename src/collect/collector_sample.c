/* collector_sample.c: the run seen from outside.
 *
 * How often. Five times a second in the first half minute, where a run starts up and where short
 * runs live; once a second up to an hour, which is enough for what changes over minutes; every five
 * seconds after that. Whatever the machine, sampling takes at most 0.4 % of one CPU, so that all of
 * leat stays below 1 %: the pause is at least 250 times as long as the sample took. Beyond 200 000
 * rows the pause doubles with every further 200 000, so that 64 processes sampled for a month stay
 * below two million; the store thins them further.
 *
 * Which processes. The training command and all its descendants, and whoever said hello, also when
 * it was reparented. The whole of /proc is searched once a second at most, and not where nobody was
 * born since; who said hello needs no search.
 *
 * A pid is not a process: with its start time it is. When the start time changes, the pid was used
 * anew.
 */
#include "collect/collector_internal.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS_PER_HALVING = 200000, COST_FACTOR = 250 };

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

/* The cgroup counts its own, the kernel all; a training may move itself into another cgroup (a
 * batch system's, say), so the larger of the two differences is what can have hit the run. */
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

void sample_begin(struct collector *c)
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

void sample_done(struct collector *c)
{
    for (size_t i = 0; i < c->seen_count; i++) {
        mem_free(c->seen[i].command);
        mem_free(c->seen[i].silent_why);
    }
    mem_free(c->seen);
    nvml_close(c->nvml);
}

/* ---- the tree ----------------------------------------------------------------------------- */

struct seen *sample_find(struct collector *c, int64_t pid)
{
    for (size_t i = c->seen_count; i-- > 0;)
        if (c->seen[i].pid == pid)
            return &c->seen[i];
    return NULL;
}

/* The kernel counts a process's start in ticks since boot, with sleep; we count without. */
static uint64_t start_of(const struct collector *c, int64_t ticks, uint64_t now)
{
    struct timespec boot;
    long per_second = sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    uint64_t boot_ns = (uint64_t)boot.tv_sec * NS_PER_S + (uint64_t)boot.tv_nsec;
    if (ticks < 0 || per_second <= 0)
        return collector_relative(c, now);
    uint64_t start = (uint64_t)ticks * (NS_PER_S / (uint64_t)per_second);
    uint64_t age = boot_ns > start ? boot_ns - start : 0;
    return collector_relative(c, now > age ? now - age : 0);
}

static void set_command(struct collector *c, struct seen *s)
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

static void add_seen(struct collector *c, const struct proc_info *info, uint64_t now)
{
    struct seen *s = sample_find(c, info->pid);
    if (!s && c->seen_count >= SEEN_MOST && c->last_forget_ns != now) {
        c->last_forget_ns = now;
        collector_forget(c);
    }
    if (s) { /* the pid is used anew: the table has one row a pid, the later one wins */
        mem_free(s->command);
        mem_free(s->silent_why);
    } else if (c->seen_count >= SEEN_MOST ||
               mem_reserve(&c->seen, &c->seen_cap, c->seen_count + 1, sizeof *c->seen) < 0) {
        c->seen_more++;
        return;
    } else {
        s = &c->seen[c->seen_count++];
    }
    *s = (struct seen){.pid = info->pid,
                       .ppid = info->ppid,
                       .start_ticks = info->start_ticks,
                       .started_ns = start_of(c, info->start_ticks, now)};
}

static void mark(struct collector *c, int64_t pid, uint64_t now)
{
    struct seen *s = sample_find(c, pid);
    struct proc_info info;
    if (s && !s->ended_ns)
        return;
    if (proc_read(c->proc_root, pid, &info) < 0)
        return;
    if (s && s->start_ticks == info.start_ticks)
        s->ended_ns = 0; /* it was only out of sight */
    else
        add_seen(c, &info, now);
}

/* One that leaves the tree without ending was adopted by init; it stays a process of the run. */
static void look_for_processes(struct collector *c, uint64_t now)
{
    int64_t *pids = NULL, last = proc_last_pid(c->proc_root);
    size_t count = 0;
    uint64_t begin = clock_cpu_ns();
    c->next_tree_ns = now + NS_PER_S;
    if (last > 0 && last == c->last_pid)
        return;
    bool searched = proc_tree(c->proc_root, c->options.root_pid, &pids, &count) == 0;
    c->last_pid = searched ? last : -1;
    for (size_t i = 0; i < count; i++)
        mark(c, pids[i], now);
    mem_free(pids);
    uint64_t cost = COST_FACTOR * (clock_cpu_ns() - begin);
    if (cost > NS_PER_S)
        c->next_tree_ns = now + cost;
}

/* Whoever said hello is known without a search: workers of a short epoch live no longer than the
 * pause between two. */
static void look_at_speakers(struct collector *c, uint64_t now)
{
    for (size_t i = 0; i < c->speaker_count; i++)
        if (c->speakers[i]->open && c->speakers[i]->pid > 0)
            mark(c, c->speakers[i]->pid, now);
}

static void end_process(struct collector *c, struct seen *s, uint64_t now)
{
    s->ended_ns = collector_relative(c, now);
    sample_write_process(c, speaker_find(c, s->pid), s);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void signals_text(uint32_t signals, char *text, size_t bytes)
{
    static const char *const names[] = {"fetch", "backward", "optimizer", "sync",
                                        "h2d",   "worker",   "step",      "cuda"};
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (signals & 1u << i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? "," : "", names[i]);
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static const char *role_of(const struct speaker *s)
{
    if (s->rank >= 0)
        return "main";
    return s->header.role == LEAT_ROLE_WORKER || s->worker.batches ? "worker" : "other";
}

/* The rank of a process as the table has it: of a worker its master's, of others none. */
static int64_t row_rank(const struct speaker *s)
{
    if (s->rank >= 0 || role_of(s)[0] != 'w')
        return s->rank;
    const struct speaker *master = speaker_master(s);
    return master ? master->rank : speaker_said_rank(s);
}

/* One row from both views; either may be NULL. */
void sample_write_process(struct collector *c, const struct speaker *s, const struct seen *seen)
{
    static const struct speaker silent = {.rank = -1, .header = {.worker_id = -1}};
    static const struct seen unseen = {.started_ns = UINT64_MAX};
    char signals[96];
    bool recorded = s != NULL;
    s = s ? s : &silent;
    const struct rec_header *h = &s->header;
    int64_t pid = seen ? seen->pid : s->pid, ppid = seen ? seen->ppid : h->ppid;
    seen = seen ? seen : &unseen;
    int64_t rank = row_rank(s);
    uint64_t started =
        recorded && s->started_ns < seen->started_ns ? s->started_ns : seen->started_ns;
    uint64_t ended = seen->ended_ns ? seen->ended_ns : s->ended_ns;
    uint64_t cost = h->cost_ns;
    signals_text(h->signals, signals, sizeof signals);
    struct process_row row = {
        .pid = pid,
        .ppid = ppid,
        .role = role_of(s),
        .rank = store_or_null(rank),
        .local_rank = store_or_null(rank >= 0 ? h->local_rank : -1),
        .world_size = store_or_null(rank >= 0 ? h->world_size : -1),
        .worker_id = store_or_null(h->worker_id),
        .comm = text_or_null(seen->comm),
        .command = seen->command,
        .started_ns = store_signed(started),
        .ended_ns = ended ? store_signed(ended) : STORE_NULL,
        .recorded = recorded,
        .signals = text_or_null(signals),
        .missing = text_or_null(h->missing),
        .python = text_or_null(h->python),
        .torch = text_or_null(h->torch),
        .devices = text_or_null(h->devices),
        .exception = text_or_null(h->exception),
        .lost_records = recorded ? store_signed(s->lost) : STORE_NULL,
        .record_cost_ns = cost > 0 && cost < NS_PER_S ? (int64_t)cost : STORE_NULL,
    };
    store_add_process(c->writer, &row);
}

static void sample_process(struct collector *c, struct seen *s, uint64_t now)
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
        s->looks = 0;
    }
    s->ppid = p.ppid;
    lost_look(c, s);
    if (new_name)
        sample_write_process(c, speaker_find(c, s->pid), s);
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

/* A quota of nearly all CPUs is none: the clock and the kernel's ticks are never quite one. */
#define QUOTA_SHARE 0.95

/* What part of the CPU time that this run may have was used, by whomever. A quota (cgroup) of fewer
 * CPUs than there are leaves idle ones that are not for us: of them counts what the quota has left.
 */
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

static bool told_device(const struct collector *c, const char *uuid)
{
    for (size_t i = 0; i < c->speaker_count; i++)
        if (uuid[0] && strstr(c->speakers[i]->header.devices, uuid))
            return true;
    return false;
}

/* A GPU of the run is one that a process of it named or holds a context on, once and for all. */
static void look_for_gpus(struct collector *c)
{
    int64_t pids[1024];
    size_t count = 0;
    for (size_t i = 0; i < c->seen_count && count < 1024; i++)
        if (!c->seen[i].ended_ns)
            pids[count++] = c->seen[i].pid;
    int gpus = nvml_count(c->nvml);
    for (int i = 0; i < gpus && i < 64; i++) {
        struct gpu_info g;
        if (c->gpus_used & 1ull << i)
            continue;
        if (nvml_uses(c->nvml, i, pids, count) ||
            (nvml_read(c->nvml, i, &g) == 0 && told_device(c, g.uuid)))
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

static void sample_gpus(struct collector *c, uint64_t now)
{
    if (!c->nvml_tried) { /* not at the start: it can take a while, and the training is under way */
        c->nvml_tried = true;
        if (nvml_open(&c->nvml, NULL) < 0)
            c->nvml = NULL;
    }
    if (!c->nvml)
        return;
    if (now >= c->next_gpu_look_ns) {
        c->next_gpu_look_ns = now + 5 * NS_PER_S;
        look_for_gpus(c);
    }
    for (int i = 0; i < 64; i++)
        if (c->gpus_used & 1ull << i)
            sample_gpu(c, i, now);
}

/* ---- the rate ----------------------------------------------------------------------------- */

void sample_run(struct collector *c, uint64_t now)
{
    if (now < c->next_sample_ns)
        return;
    uint64_t begin = clock_cpu_ns(), tree_ns = 0;
    if (now >= c->next_tree_ns) {
        look_for_processes(c, now);
        tree_ns = clock_cpu_ns() - begin; /* has a rate of its own */
    }
    look_at_speakers(c, now);
    for (size_t i = 0; i < c->seen_count; i++)
        if (!c->seen[i].ended_ns)
            sample_process(c, &c->seen[i], now);
    sample_system(c, now);
    sample_gpus(c, now);
    c->next_sample_ns = now + period_ns(c, now, clock_cpu_ns() - begin - tree_ns);
}

void sample_finish(struct collector *c)
{
    uint64_t now = clock_now_ns();
    c->next_sample_ns = c->next_tree_ns = 0;
    sample_run(c, now);
    store_oom_kills(c);
}
