/* cgroup.c: how much of the machine this process may use.
 *
 * Any ancestor of our group may set a limit, so the smallest of them counts. What an
 * ancestor is depends on what is mounted:
 *
 *     v2          one tree, files cpu.max, memory.max
 *     v1          a tree for each controller, files cpu.cfs_quota_us, memory.limit_in_bytes
 *     hybrid      both; each controller is in one of them: v1 where it is mounted there
 *
 * /proc/self/cgroup gives the path of our group, /proc/self/mountinfo where each tree is mounted
 * and which group is the top of what we see. In a container the two may differ: with
 * its own cgroup namespace the path is relative to the container ("/", or "/../x" for a process put
 * in from outside), without one it is the host's path while only the container's part is mounted.
 *
 *     mounted group   our path          our folder
 *     /               /a/b              <mount>/a/b
 *     /docker/1f      /docker/1f/job    <mount>/job
 *     /docker/1f      /                 <mount>
 *     any             not found           <mount>: the nearest known ancestor
 *
 * Used memory leaves out the page cache that the kernel would give back first (inactive_file), as
 * container managers do: else memory would always seem full in a run that reads a large data set.
 */
#include "base/cgroup.h"

#include "base/mem.h"
#include "base/proc_text.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DEPTH = 64 };

struct tree {             /* where one controller is found */
    int version;          /* 1 or 2; 0: nowhere */
    char mount[PATH_MAX]; /* as the machine sees it, without the test root */
    char group[PATH_MAX]; /* our group under it: "" or "/a/b" */
};

/* 1 when the comma-separated `list` holds `word`. */
static int lists(const char *list, size_t length, const char *word)
{
    size_t need = strlen(word);
    for (const char *at = list, *end = list + length; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t here = (size_t)((comma ? comma : end) - at);
        if (here == need && memcmp(at, word, need) == 0)
            return 1;
        at += here + 1;
    }
    return 0;
}

/* mountinfo writes blanks, tabs, newlines and backslashes as three octal digits. */
static void unescape(const char *from, size_t length, char *to, size_t bytes)
{
    size_t out = 0;
    for (size_t i = 0; i < length && out + 1 < bytes; out++) {
        if (from[i] == '\\' && i + 3 < length && from[i + 1] >= '0' && from[i + 1] <= '3' &&
            from[i + 2] >= '0' && from[i + 2] <= '7' && from[i + 3] >= '0' && from[i + 3] <= '7') {
            to[out] =
                (char)((from[i + 1] - '0') * 64 + (from[i + 2] - '0') * 8 + (from[i + 3] - '0'));
            i += 4;
        } else {
            to[out] = from[i++];
        }
    }
    to[out] = 0;
}

/* The blank-separated word number `index` of a line; its length in *ret_length. */
static const char *word_at(const char *line, const char *end, int index, size_t *ret_length)
{
    const char *at = line;
    for (;; index--) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        if (!blank)
            blank = end;
        if (index == 0) {
            *ret_length = (size_t)(blank - at);
            return at;
        }
        if (blank == end)
            return NULL;
        at = blank + 1;
    }
}

/* Our path in the tree of `controller` ("" for v2), from the lines "4:cpu,cpuacct:/a/b". */
static int find_path(const char *text, const char *controller, char *ret_path, size_t bytes)
{
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        const char *first = memchr(line, ':', (size_t)(end - line));
        const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
        if (second) {
            size_t length = (size_t)(second - first - 1);
            if (*controller ? lists(first + 1, length, controller) : length == 0) {
                snprintf(ret_path, bytes, "%.*s", (int)(end - second - 1), second + 1);
                return 1;
            }
        }
        line = *end ? end + 1 : end;
    }
    return 0;
}

/* Does this line of mountinfo mount the tree we look for? Fills top and mount when it does.
 *     36 31 0:33 /top /mount rw,relatime shared:1 - cgroup cgroup rw,memory                    */
static int match_mount(const char *line, const char *end, const char *controller, char *ret_top,
                       char *ret_mount, size_t bytes)
{
    const char *dash = memmem(line, (size_t)(end - line), " - ", 3);
    if (!dash)
        return 0;
    size_t type_length = 0, options_length = 0, top_length = 0, mount_length = 0;
    const char *type = word_at(dash + 3, end, 0, &type_length);
    const char *options = word_at(dash + 3, end, 2, &options_length);
    const char *top = word_at(line, dash, 3, &top_length);
    const char *mount = word_at(line, dash, 4, &mount_length);
    if (!type || !top || !mount)
        return 0;
    if (*controller) {
        if (type_length != 6 || memcmp(type, "cgroup", 6) != 0 || !options ||
            !lists(options, options_length, controller))
            return 0;
    } else if (type_length != 7 || memcmp(type, "cgroup2", 7) != 0) {
        return 0;
    }
    unescape(top, top_length, ret_top, bytes);
    unescape(mount, mount_length, ret_mount, bytes);
    return 1;
}

/* Sets tree->group from our path and the mounted group; "" when there is no such folder. */
static void locate(const char *root, const char *path, const char *top, struct tree *tree)
{
    size_t length = strlen(top);
    const char *rest = path;
    if (strcmp(top, "/") != 0)
        rest = strncmp(path, top, length) == 0 && (path[length] == '/' || !path[length])
                   ? path + length
                   : "";
    if (strcmp(rest, "/") == 0 || strstr(rest, "/.."))
        rest = "";
    snprintf(tree->group, sizeof tree->group, "%s", rest);
    char whole[2 * PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", tree->mount, tree->group);
    int dir = proc_text_open_dir(root, whole);
    if (dir < 0)
        tree->group[0] = 0;
    else
        close(dir);
}

/* Finds the tree of `controller` in v1, else the v2 tree. `cgroups` and `mounts` are the texts of
 * the two files. */
static void find_tree(const char *root, const char *cgroups, const char *mounts,
                      const char *controller, struct tree *ret_tree)
{
    const char *const names[] = {controller, ""};
    char path[PATH_MAX], top[PATH_MAX];
    ret_tree->version = 0;
    for (int v = 0; v < 2; v++) {
        if (!find_path(cgroups, names[v], path, sizeof path))
            continue;
        for (const char *line = mounts; *line;) {
            const char *end = strchrnul(line, '\n');
            if (match_mount(line, end, names[v], top, ret_tree->mount, sizeof ret_tree->mount)) {
                ret_tree->version = v + 1;
                locate(root, path, top, ret_tree);
                return;
            }
            line = *end ? end + 1 : end;
        }
    }
}

/* Opens our group's folder, then one parent per call, up to the mount. Returns a
 * descriptor, or -1 after the last. */
static int open_upward(const char *root, struct tree *tree, int *depth)
{
    while (*depth >= 0 && *depth < MAX_DEPTH) {
        char whole[2 * PATH_MAX];
        snprintf(whole, sizeof whole, "%s%s", tree->mount, tree->group);
        char *slash = strrchr(tree->group, '/');
        if (slash) {
            *slash = 0;
            (*depth)++;
        } else {
            *depth = -1; /* that was the mount itself */
        }
        int dir = proc_text_open_dir(root, whole);
        if (dir >= 0)
            return dir;
    }
    return -1;
}

static int64_t read_one(int dir, const char *name)
{
    char text[64];
    const char *at = text;
    return proc_text_read(dir, name, text, sizeof text) > 0 ? proc_text_number(&at) : -1;
}

/* CPUs by the quota of one group; 0 when it sets none. */
static double quota_of(int dir, int version)
{
    int64_t quota, period;
    if (version == 2) {
        char text[64];
        if (proc_text_read(dir, "cpu.max", text, sizeof text) <= 0)
            return 0;
        const char *at = text; /* "max 100000" or "150000 100000" */
        quota = proc_text_number(&at);
        period = proc_text_number(&at);
    } else {
        quota = read_one(dir, "cpu.cfs_quota_us"); /* "-1": no quota */
        period = read_one(dir, "cpu.cfs_period_us");
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

struct memory {
    int64_t limit, used, oom_kills;
};

static void memory_of(int dir, int version, struct memory *ret_memory)
{
    char text[8192];
    struct memory m = {-1, -1, -1};
    m.limit = read_one(dir, version == 2 ? "memory.max" : "memory.limit_in_bytes");
    m.used = read_one(dir, version == 2 ? "memory.current" : "memory.usage_in_bytes");
    if (m.used >= 0 && proc_text_read(dir, "memory.stat", text, sizeof text) > 0) {
        int64_t cache =
            proc_text_field(text, version == 2 ? "inactive_file" : "total_inactive_file");
        if (cache > 0)
            m.used = cache < m.used ? m.used - cache : 0;
    }
    if (proc_text_read(dir, version == 2 ? "memory.events" : "memory.oom_control", text,
                       sizeof text) > 0)
        m.oom_kills = proc_text_field(text, "oom_kill");
    *ret_memory = m;
}

static void read_memory(const char *root, struct tree *tree, int64_t machine_bytes,
                        struct cgroup_info *info)
{
    int depth = 0, own = 1, dir;
    while ((dir = open_upward(root, tree, &depth)) >= 0) {
        struct memory m;
        memory_of(dir, tree->version, &m);
        close(dir);
        if (own) {
            info->memory_used_bytes = m.used;
            info->oom_kills = m.oom_kills;
            own = 0;
        }
        /* In v1 a number near 2^63 means no limit. */
        if (m.limit < 0 || (machine_bytes >= 0 && m.limit >= machine_bytes) ||
            m.limit >= INT64_MAX / 2)
            continue;
        if (info->memory_limit_bytes < 0 || m.limit < info->memory_limit_bytes) {
            info->memory_limit_bytes = m.limit;
            info->memory_used_bytes = m.used; /* of the group whose limit it is */
        }
    }
}

static void allow(struct cpus_allowed *cpus, int64_t cpu)
{
    if (cpu < CPUS_MOST && !cpus_allows(cpus, cpu)) {
        cpus->bits[cpu / 8] |= (uint8_t)(1 << cpu % 8);
        cpus->count++;
    }
}

static void ask_affinity(struct cpus_allowed *cpus)
{
    for (int most = 1024; most <= CPUS_MOST && !cpus->count;
         most *= 4) { /* EINVAL: there are more */
        cpu_set_t *set = CPU_ALLOC((size_t)most);
        size_t bytes = CPU_ALLOC_SIZE((size_t)most);
        if (set && sched_getaffinity(0, bytes, set) == 0)
            for (int cpu = 0; cpu < most; cpu++)
                if (CPU_ISSET_S((size_t)cpu, bytes, set))
                    allow(cpus, cpu);
        CPU_FREE(set);
    }
}

void cpus_allowed_read(const char *root, struct cpus_allowed *ret_cpus)
{
    char text[4096];
    memset(ret_cpus, 0, sizeof *ret_cpus);
    if (strcmp(root, "/") == 0)
        ask_affinity(ret_cpus);
    if (ret_cpus->count || proc_text_read_at(root, "/proc/self/status", text, sizeof text) <= 0)
        return;
    const char *at = strstr(text, "\nCpus_allowed_list:"); /* "0-3,8" */
    if (!at)
        return;
    at += strlen("\nCpus_allowed_list:");
    do {
        int64_t low = proc_text_number(&at), high = low;
        if (*at == '-') {
            at++;
            high = proc_text_number(&at);
        }
        if (low < 0 || high < low || high >= CPUS_MOST)
            return;
        for (int64_t cpu = low; cpu <= high; cpu++)
            allow(ret_cpus, cpu);
    } while (*at++ == ',');
}

int cgroup_read(const char *root, struct cgroup_info *ret_info)
{
    struct cgroup_info info = {.memory_limit_bytes = -1, .memory_used_bytes = -1, .oom_kills = -1};
    struct cpus_allowed allowed;
    cpus_allowed_read(root, &allowed);
    int64_t affinity = allowed.count ? allowed.count : sysconf(_SC_NPROCESSORS_ONLN);
    info.cpus = affinity > 0 ? (double)affinity : 1;

    /* On a host with many containers mountinfo has hundreds of lines; beyond this it is cut. */
    static const size_t most_bytes = 128 << 10;
    char *mounts = mem_alloc(most_bytes), cgroups[8192];
    if (!mounts)
        return -ENOMEM;
    if (proc_text_read_at(root, "/proc/self/cgroup", cgroups, sizeof cgroups) > 0 &&
        proc_text_read_at(root, "/proc/self/mountinfo", mounts, most_bytes) > 0) {
        char text[8192];
        int64_t machine_bytes = -1;
        if (proc_text_read_at(root, "/proc/meminfo", text, sizeof text) > 0)
            machine_bytes = proc_text_scale(proc_text_field(text, "MemTotal:"), 1024);
        struct tree cpu, memory;
        find_tree(root, cgroups, mounts, "cpu", &cpu);
        find_tree(root, cgroups, mounts, "memory", &memory);
        info.version = cpu.version == 1 || memory.version == 1 ? 1 : cpu.version;
        if (memory.version)
            read_memory(root, &memory, machine_bytes, &info);
        int depth = 0, dir;
        while (cpu.version && (dir = open_upward(root, &cpu, &depth)) >= 0) {
            double quota = quota_of(dir, cpu.version);
            close(dir);
            if (quota > 0 && quota < info.cpus)
                info.cpus = quota;
        }
    }
    mem_free(mounts);
    if (info.cpus < 0.01)
        info.cpus = 0.01;
    *ret_info = info;
    return 0;
}
