/* proc_system.c: reads the machine from /proc/{stat,meminfo,vmstat,pressure} and /dev/shm.
 *
 * In a container /proc shows the whole machine, unless lxcfs replaces it. So some figures are
 * limited to what this run may use: CPU times of the CPUs in its affinity, and the memory of its
 * cgroup if that is less.
 */
#include "observe/observe.h"

#include "base/cgroup.h"
#include "base/mem.h"
#include "base/proc_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct ticks {
    int64_t all, idle, iowait, steal; /* -1: unknown */
};

/* "user nice system idle iowait irq softirq steal guest guest_nice". Guest time is within user and
 * nice. 0 when the line makes no sense. */
static int parse_ticks(const char *at, struct ticks *ret_ticks)
{
    struct ticks t = {0, -1, -1, -1};
    for (int i = 0; i < 8; i++) {
        const char *before = at;
        int64_t value = proc_text_number(&at);
        if (at == before)
            break; /* old kernels have fewer */
        t.all = proc_text_sum(t.all, value);
        if (i == 3)
            t.idle = value;
        if (i == 4)
            t.iowait = value;
        if (i == 7)
            t.steal = value;
    }
    int64_t rest = proc_text_sum(t.idle, t.iowait);
    if (t.all < 0 || rest < 0 || rest > t.all)
        return 0;
    *ret_ticks = t;
    return 1;
}

static void add_ticks(struct ticks *sum, const struct ticks *t)
{
    sum->all = proc_text_sum(sum->all, t->all);
    sum->idle = proc_text_sum(sum->idle, t->idle);
    sum->iowait = proc_text_sum(sum->iowait, t->iowait);
    sum->steal = proc_text_sum(sum->steal, t->steal);
}

/* The sum of the lines "cpu7 …" of the CPUs that we may run on: others may idle, or be busy,
 * without meaning anything to this run. 0 when there is none of them. */
static int sum_allowed(const char *root, const char *text, struct ticks *ret_ticks)
{
    struct cpus_allowed allowed;
    struct ticks sum = {0}, t;
    int found = 0;
    cpus_allowed_read(root, &allowed);
    for (const char *line = strstr(text, "\ncpu"); line; line = strstr(line, "\ncpu")) {
        line += strlen("\ncpu");
        int64_t cpu = proc_text_number(&line);
        if (cpus_allows(&allowed, cpu) && *line == ' ' && strchr(line, '\n') &&
            parse_ticks(line, &t)) {
            add_ticks(&sum, &t);
            found = 1;
        }
    }
    *ret_ticks = sum;
    return found;
}

/* Stolen time counts as busy: the CPU could not be used. */
static void read_cpu(const char *root, struct sys_info *info)
{
    static const size_t most_bytes =
        64 << 10; /* enough for 700 CPUs; the interrupt counts after them are cut */
    char *text = mem_alloc(most_bytes);
    long ticks = sysconf(_SC_CLK_TCK);
    struct ticks t;
    if (text && ticks > 0 && proc_text_read_at(root, "/proc/stat", text, most_bytes) > 0 &&
        strncmp(text, "cpu ", 4) == 0 && parse_ticks(text + 4, &t)) {
        struct ticks ours;
        if (sum_allowed(root, text, &ours))
            t = ours;
        int64_t ns_per_tick = 1000000000 / ticks;
        info->all_ns = proc_text_scale(t.all, ns_per_tick);
        info->iowait_ns = proc_text_scale(t.iowait, ns_per_tick);
        info->busy_ns = proc_text_scale(t.all - t.idle - t.iowait, ns_per_tick);
        info->steal_ns = proc_text_scale(t.steal, ns_per_tick);
    }
    mem_free(text);
}

static void read_memory(const char *root, struct sys_info *info)
{
    char text[8192];
    if (proc_text_read_at(root, "/proc/meminfo", text, sizeof text) <= 0)
        return;
    info->memory_total = proc_text_scale(proc_text_field(text, "MemTotal:"), 1024);
    int64_t available = proc_text_field(text, "MemAvailable:");
    if (available < 0) /* before 3.14, and some sandboxes */
        available = proc_text_sum(
            proc_text_field(text, "MemFree:"),
            proc_text_sum(proc_text_field(text, "Buffers:"), proc_text_field(text, "Cached:")));
    info->memory_available = proc_text_scale(available, 1024);
    int64_t total = proc_text_field(text, "SwapTotal:"), left = proc_text_field(text, "SwapFree:");
    if (total >= 0 && left >= 0 && left <= total)
        info->swap_used_bytes = proc_text_scale(total - left, 1024);
}

static void read_cgroup(const char *root, struct sys_info *info)
{
    struct cgroup_info group;
    if (cgroup_read(root, &group) < 0 || group.memory_limit_bytes < 0)
        return;
    if (info->memory_total < 0 || group.memory_limit_bytes < info->memory_total)
        info->memory_total = group.memory_limit_bytes;
    if (group.memory_used_bytes < 0)
        return;
    int64_t left = group.memory_limit_bytes - group.memory_used_bytes;
    if (left < 0)
        left = 0;
    if (info->memory_available < 0 || left < info->memory_available)
        info->memory_available = left;
}

static void read_vmstat(const char *root, struct sys_info *info)
{
    char text[16384];
    if (proc_text_read_at(root, "/proc/vmstat", text, sizeof text) <= 0)
        return;
    long page = sysconf(_SC_PAGESIZE);
    info->swap_in_bytes = proc_text_scale(proc_text_field(text, "pswpin"), page);
    info->swap_out_bytes = proc_text_scale(proc_text_field(text, "pswpout"), page);
    info->oom_kills = proc_text_field(text, "oom_kill");
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123": microseconds in which at least one task
 * waited. -1 where the kernel has no pressure files or has them switched off (EOPNOTSUPP). */
static int64_t read_pressure(const char *root, const char *path)
{
    char text[512];
    if (proc_text_read_at(root, path, text, sizeof text) <= 0 || strncmp(text, "some ", 5) != 0)
        return -1;
    char *end = strchr(text, '\n');
    if (end)
        *end = 0;
    const char *total = strstr(text, "total=");
    if (!total)
        return -1;
    total += strlen("total=");
    return proc_text_number(&total);
}

static void read_shm(const char *root, struct sys_info *info)
{
    int dir = proc_text_open_dir(root, "/dev/shm");
    struct statvfs fs;
    if (dir < 0)
        return;
    if (fstatvfs(dir, &fs) == 0 && fs.f_bfree <= fs.f_blocks) {
        info->shm_total = proc_text_scale((int64_t)fs.f_blocks, (int64_t)fs.f_frsize);
        info->shm_used = proc_text_scale((int64_t)(fs.f_blocks - fs.f_bfree), (int64_t)fs.f_frsize);
    }
    close(dir);
}

int sys_read(const char *root, struct sys_info *ret_info)
{
    struct sys_info info;
    /* Every field is an int64_t, and -1 has all bits set in each. */
    memset(&info, 0xff, sizeof info);
    read_cpu(root, &info);
    read_memory(root, &info);
    read_cgroup(root, &info);
    read_vmstat(root, &info);
    info.cpu_stall_us = read_pressure(root, "/proc/pressure/cpu");
    info.memory_stall_us = read_pressure(root, "/proc/pressure/memory");
    info.io_stall_us = read_pressure(root, "/proc/pressure/io");
    read_shm(root, &info);
    *ret_info = info;
    return 0;
}
