/* proc_system.c: the machine as a whole, out of /proc/{stat,meminfo,vmstat,pressure} and /dev/shm.
 *
 * In a container /proc still speaks of the whole machine, except where it is laid over (lxcfs). The
 * two figures for which that would mislead, memory in all and memory left, are therefore taken from
 * the cgroup where it leaves less.
 */
#include "observe/observe.h"

#include "base/cgroup.h"
#include "base/proc_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Ticks of "cpu  user nice system idle iowait irq softirq steal guest guest_nice". Guest time is
 * within user and nice. Stolen time counts as busy: the CPU was not there to be used. */
static void read_cpu(const char *root, struct sys_info *info)
{
    /* The line of interest is the first; the rest, thousands of interrupt counts, is cut off. */
    char text[1024];
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || proc_text_read_at(root, "/proc/stat", text, sizeof text) <= 0 ||
        strncmp(text, "cpu ", 4) != 0)
        return;
    const char *at = text + 4;
    int64_t all = 0, idle = -1, iowait = -1, steal = -1, ns_per_tick = 1000000000 / ticks;
    for (int i = 0; i < 8; i++) {
        const char *before = at;
        int64_t value = proc_text_number(&at);
        if (at == before)
            break; /* old kernels have fewer */
        all = proc_text_sum(all, value);
        if (i == 3)
            idle = value;
        if (i == 4)
            iowait = value;
        if (i == 7)
            steal = value;
    }
    int64_t rest = proc_text_sum(idle, iowait);
    if (all < 0 || rest < 0 || rest > all)
        return;
    info->all_ns = proc_text_scale(all, ns_per_tick);
    info->iowait_ns = proc_text_scale(iowait, ns_per_tick);
    info->busy_ns = proc_text_scale(all - rest, ns_per_tick);
    info->steal_ns = proc_text_scale(steal, ns_per_tick);
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
