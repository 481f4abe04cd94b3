/* proc_process.c: reads a process and its descendants from /proc/PID.
 *
 * The files, their contents, and the time to read them (Linux 6.18, a small virtual machine):
 *
 *     stat      parent, faults, CPU ticks of all threads, threads, start          5 us
 *     status    resident and shared memory, context switches of the main thread   8 us
 *     io        bytes and calls; only with the right to trace it                  4 us
 *     schedstat time the main thread waited for a CPU                             4 us
 *     limits    the limit of open files                                           8 us
 *     fd        count of open files: one stat since Linux 6.2, else a readdir      1 us
 *     task/TID  context switches of the further threads, 8 us each, at most 63 of them
 *
 * The kernel counts context switches per thread, so `voluntary` and `involuntary` are sums over the
 * running threads, at most MOST_THREADS of them, the oldest first. When a thread ends its count is
 * lost, so a reader of differences treats a decrease as zero.
 *
 * The name of a process may contain blanks, parentheses and newlines: in `stat` it ends at the last
 * ")" of the file, since only numbers follow; in `status` the kernel escapes newlines.
 */
#include "observe/observe.h"

#include "base/mem.h"
#include "base/proc_text.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    MOST_THREADS = 64,     /* at most half a millisecond per process */
    MOST_FDS = 1 << 16,    /* counted one by one on kernels before 6.2 */
    MOST_ENVIRON = 4 << 20 /* twice the default limit of execve */
};

static int open_process(const char *root, int64_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    return proc_text_open_dir(root, path);
}

/* Fields of /proc/PID/stat by their number in proc(5), counted from the third. */
enum {
    STAT_PPID = 4 - 3,
    STAT_MINFLT = 10 - 3,
    STAT_MAJFLT = 12 - 3,
    STAT_UTIME = 14 - 3,
    STAT_STIME = 15 - 3,
    STAT_THREADS = 20 - 3,
    STAT_START = 22 - 3,
    STAT_FIELDS = 23 - 3
};

static void copy_comm(const char *from, size_t length, char *to, size_t bytes)
{
    if (length >= bytes)
        length = bytes - 1;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = c < 0x20 || c == 0x7f ? '?' : from[i];
    }
    to[length] = 0;
}

/* Splits `text`; missing or non-numeric fields stay -1. -EBADMSG without a name. */
static int parse_stat(const char *text, char *comm, size_t comm_bytes, int64_t fields[STAT_FIELDS])
{
    for (int i = 0; i < STAT_FIELDS; i++)
        fields[i] = -1;
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open)
        return -EBADMSG;
    if (comm)
        copy_comm(open + 1, (size_t)(close - open - 1), comm, comm_bytes);
    const char *at = close + 1;
    for (int i = 0; i < STAT_FIELDS; i++) {
        at += strspn(at, " ");
        if (!*at)
            break;
        fields[i] = proc_text_number(&at);
        at += strcspn(at, " "); /* the state is a letter; some fields are negative */
    }
    return 0;
}

static void read_stat(const char *text, struct proc_info *info)
{
    int64_t f[STAT_FIELDS];
    if (parse_stat(text, info->comm, sizeof info->comm, f) < 0)
        return;
    info->ppid = f[STAT_PPID];
    info->minor_faults = f[STAT_MINFLT];
    info->major_faults = f[STAT_MAJFLT];
    info->threads = f[STAT_THREADS];
    info->start_ticks = f[STAT_START];
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks > 0)
        info->cpu_ns =
            proc_text_scale(proc_text_sum(f[STAT_UTIME], f[STAT_STIME]), 1000000000 / ticks);
}

static void read_status(int dir, struct proc_info *info)
{
    char text[4096];
    if (proc_text_read(dir, "status", text, sizeof text) > 0) {
        info->voluntary = proc_text_field(text, "voluntary_ctxt_switches:");
        info->involuntary = proc_text_field(text, "nonvoluntary_ctxt_switches:");
        info->rss_bytes = proc_text_scale(proc_text_field(text, "VmRSS:"), 1024);
        info->shared_bytes = proc_text_scale(
            proc_text_sum(proc_text_field(text, "RssFile:"), proc_text_field(text, "RssShmem:")),
            1024);
    }
    /* A zombie has no memory lines, and kernels before 4.5 have no Rss lines. */
    if ((info->rss_bytes < 0 || info->shared_bytes < 0) &&
        proc_text_read(dir, "statm", text, sizeof text) > 0) {
        const char *at = text;
        long page = sysconf(_SC_PAGESIZE);
        proc_text_number(&at);
        int64_t rss = proc_text_number(&at);
        info->rss_bytes = proc_text_scale(rss, page);
        info->shared_bytes = proc_text_scale(rss < 0 ? -1 : proc_text_number(&at), page);
    }
}

/* Calls `each` with the name of every entry but "." and "..", until it returns nonzero. Without
 * opendir, which allocates 32 kB for each of hundreds of processes per second. */
static int list_dir(int dir, const char *name, int (*each)(const char *name, void *context),
                    void *context)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    char buffer[4096] __attribute__((aligned(8)));
    int result = 0, stop = 0;
    while (!stop) {
        ssize_t got = getdents64(fd, buffer, sizeof buffer);
        if (got < 0)
            result = -errno;
        if (got <= 0)
            break;
        for (ssize_t at = 0; at < got && !stop;) {
            struct dirent64 *entry = (struct dirent64 *)(buffer + at);
            at += entry->d_reclen;
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                stop = each(entry->d_name, context);
        }
    }
    close(fd);
    return result;
}

static int count_one(const char *name, void *context)
{
    return ++*(int64_t *)context >= MOST_FDS;
}

static int64_t count_fds(int dir)
{
    struct stat st;
    struct statfs fs;
    /* Since Linux 6.2 the size of /proc/PID/fd is the count; before, it is 0. On other file systems
     * the size of a folder is something else. */
    if (fstatfs(dir, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC &&
        fstatat(dir, "fd", &st, 0) == 0 && st.st_size > 0)
        return st.st_size;
    int64_t count = 0;
    return list_dir(dir, "fd", count_one, &count) < 0 ? -1 : count;
}

struct switches {
    int dir;     /* of the process */
    int64_t pid; /* the main thread, already counted */
    int threads; /* read so far, with the main thread */
    struct proc_info *info;
};

static int add_thread(const char *name, void *context)
{
    struct switches *s = context;
    const char *digits = name;
    int64_t tid = proc_text_number(&digits);
    if (tid < 0 || *digits || tid == s->pid)
        return 0;
    char path[64], text[4096];
    snprintf(path, sizeof path, "task/%lld/status", (long long)tid);
    if (proc_text_read(s->dir, path, text, sizeof text) > 0) {
        int64_t yes = proc_text_field(text, "voluntary_ctxt_switches:");
        int64_t no = proc_text_field(text, "nonvoluntary_ctxt_switches:");
        if (yes >= 0 && no >= 0) {
            s->info->voluntary = proc_text_sum(s->info->voluntary, yes);
            s->info->involuntary = proc_text_sum(s->info->involuntary, no);
        }
    }
    return ++s->threads >= MOST_THREADS;
}

static int64_t read_fd_limit(int dir)
{
    char text[4096];
    if (proc_text_read(dir, "limits", text, sizeof text) <= 0)
        return -1;
    return proc_text_field(text, "Max open files"); /* the soft one; "unlimited" is unknown */
}

/* "ran waited slices": nanoseconds on a CPU and in the queue for one, of the main thread. */
static int64_t read_run_delay(int dir)
{
    char text[128];
    if (proc_text_read(dir, "schedstat", text, sizeof text) <= 0)
        return -1;
    const char *at = text;
    return proc_text_number(&at) < 0 ? -1 : proc_text_number(&at);
}

int proc_read(const char *root, int64_t pid, struct proc_info *ret_info)
{
    struct proc_info info = {.pid = pid,
                             .ppid = -1,
                             .start_ticks = -1,
                             .cpu_ns = -1,
                             .rss_bytes = -1,
                             .shared_bytes = -1,
                             .threads = -1,
                             .fds = -1,
                             .fd_limit = -1,
                             .voluntary = -1,
                             .involuntary = -1,
                             .minor_faults = -1,
                             .major_faults = -1,
                             .read_bytes = -1,
                             .write_bytes = -1,
                             .read_calls = -1,
                             .run_delay_ns = -1};
    int dir = open_process(root, pid);
    if (dir < 0)
        return dir == -ENOENT ? -ESRCH : dir;
    char text[1024];
    ssize_t got = proc_text_read(dir, "stat", text, sizeof text);
    if (got == -ESRCH || got == -ENOENT) {
        close(dir);
        return -ESRCH;
    }
    if (got > 0)
        read_stat(text, &info);
    read_status(dir, &info);
    if (info.threads > 1 && info.voluntary >= 0 && info.involuntary >= 0) {
        struct switches s = {.dir = dir, .pid = pid, .threads = 1, .info = &info};
        list_dir(dir, "task", add_thread, &s);
    }
    if (proc_text_read(dir, "io", text, sizeof text) > 0) {
        info.read_calls = proc_text_field(text, "syscr:");
        info.read_bytes = proc_text_field(text, "read_bytes:");
        info.write_bytes = proc_text_field(text, "write_bytes:");
    }
    info.run_delay_ns = read_run_delay(dir);
    info.fd_limit = read_fd_limit(dir);
    info.fds = count_fds(dir);
    close(dir);
    *ret_info = info;
    return 0;
}

int proc_wait_status(const char *root, int64_t pid, int *ret_status)
{
    enum { STAT_STATE = 3 - 3, STAT_EXIT_CODE = 52 - 3 };
    char text[1024];
    int dir = open_process(root, pid);
    ssize_t got = dir < 0 ? dir : proc_text_read(dir, "stat", text, sizeof text);
    if (dir >= 0)
        close(dir);
    const char *at = got > 0 ? strrchr(text, ')') : NULL;
    if (!at)
        return -ESRCH;
    at++;
    for (int field = STAT_STATE;; field++) {
        at += strspn(at, " ");
        if (!*at)
            return -ESRCH;
        if (field == STAT_STATE && *at != 'Z')
            return -EAGAIN;
        if (field == STAT_EXIT_CODE)
            break;
        at += strcspn(at, " ");
    }
    *ret_status = (int)proc_text_number(&at);
    return 0;
}

int proc_command(const char *root, int64_t pid, char *ret_text, size_t bytes)
{
    if (bytes < 2)
        return -ENOSPC;
    int dir = open_process(root, pid);
    if (dir < 0)
        return dir == -ENOENT ? -ESRCH : dir;
    ssize_t got = proc_text_read(dir, "cmdline", ret_text, bytes);
    if (got == 0) {
        /* A zombie and a kernel thread have no arguments: their name in brackets, as in ps. */
        struct proc_info info = {0};
        char text[1024];
        int64_t fields[STAT_FIELDS];
        if (proc_text_read(dir, "stat", text, sizeof text) > 0 &&
            parse_stat(text, info.comm, sizeof info.comm, fields) == 0)
            snprintf(ret_text, bytes, "[%s]", info.comm);
    }
    close(dir);
    if (got < 0)
        return got == -ENOENT ? -ESRCH : (int)got;
    for (ssize_t i = 0; i < got; i++)
        if ((unsigned char)ret_text[i] < 0x20 || ret_text[i] == 0x7f)
            ret_text[i] = ' ';
    while (got > 0 && ret_text[got - 1] == ' ')
        ret_text[--got] = 0;
    if (got > 0)
        ret_text[str_whole_utf8(ret_text, (size_t)got)] = 0;
    return 0;
}

int proc_environ(const char *root, int64_t pid, const char *name, char *ret_text, size_t bytes)
{
    int dir = open_process(root, pid);
    if (dir < 0)
        return dir == -ENOENT ? -ESRCH : dir;
    size_t capacity = 64 << 10, length = strlen(name);
    char *text = NULL;
    ssize_t got;
    int result;
    for (;;) {
        char *larger = mem_resize(text, capacity, 1);
        if (!larger) {
            result = -ENOMEM;
            goto out;
        }
        text = larger;
        got = proc_text_read(dir, "environ", text, capacity);
        if (got < 0 || (size_t)got < capacity - 1 || capacity >= MOST_ENVIRON)
            break;
        capacity *= 4;
    }
    result = got == -ENOENT ? -ESRCH : got < 0 ? (int)got : -ENOENT;
    for (ssize_t at = 0; at < got; at += (ssize_t)strlen(text + at) + 1) {
        if (strncmp(text + at, name, length) != 0 || text[at + (ssize_t)length] != '=')
            continue;
        const char *value = text + at + length + 1;
        if (strlen(value) >= bytes) {
            result = -ENOSPC;
        } else {
            strcpy(ret_text, value);
            result = 0;
        }
        break;
    }
out:
    mem_free(text);
    close(dir);
    return result;
}

struct parent {
    int64_t pid, ppid;
    int taken;
};

struct family {
    int proc; /* descriptor of /proc */
    struct parent *items;
    size_t count, capacity;
    int failed;
};

static int add_process(const char *name, void *context)
{
    struct family *family = context;
    const char *digits = name;
    int64_t pid = proc_text_number(&digits), fields[STAT_FIELDS];
    char path[64], text[1024];
    if (pid <= 0 || *digits)
        return 0;
    snprintf(path, sizeof path, "%lld/stat", (long long)pid);
    if (proc_text_read(family->proc, path, text, sizeof text) <= 0 ||
        parse_stat(text, NULL, 0, fields) < 0)
        return 0; /* it has ended meanwhile */
    if (mem_reserve(&family->items, &family->capacity, family->count + 1, sizeof *family->items) <
        0) {
        family->failed = 1;
        return 1;
    }
    family->items[family->count++] = (struct parent){.pid = pid, .ppid = fields[STAT_PPID]};
    return 0;
}

static int by_parent(const void *a, const void *b)
{
    const struct parent *x = a, *y = b;
    if (x->ppid != y->ppid)
        return x->ppid < y->ppid ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* The first process whose parent is `ppid`, or the end. */
static size_t first_child(const struct family *family, int64_t ppid)
{
    size_t low = 0, high = family->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (family->items[middle].ppid < ppid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int proc_tree(const char *root, int64_t pid, int64_t **ret_pids, size_t *ret_count)
{
    struct family family = {.proc = proc_text_open_dir(root, "/proc")};
    if (family.proc < 0)
        return family.proc;
    int64_t *pids = NULL;
    size_t count = 0, capacity = 0;
    int result = list_dir(family.proc, ".", add_process, &family);
    if (family.failed || mem_reserve(&pids, &capacity, family.count + 1, sizeof *pids) < 0)
        result = -ENOMEM;
    if (result < 0)
        goto out;
    if (family.count > 1)
        qsort(family.items, family.count, sizeof *family.items, by_parent);
    for (size_t i = 0; i < family.count && count == 0; i++) {
        if (family.items[i].pid == pid) {
            family.items[i].taken = 1; /* recorded data may have a cycle */
            pids[count++] = pid;
        }
    }
    result = count ? 0 : -ESRCH;
    /* The list is also the queue: children are appended, each once. */
    for (size_t next = 0; next < count; next++) {
        for (size_t i = first_child(&family, pids[next]);
             i < family.count && family.items[i].ppid == pids[next]; i++) {
            if (!family.items[i].taken) {
                family.items[i].taken = 1;
                pids[count++] = family.items[i].pid;
            }
        }
    }
out:
    close(family.proc);
    mem_free(family.items);
    if (result < 0) {
        mem_free(pids);
        return result;
    }
    *ret_pids = pids;
    *ret_count = count;
    return 0;
}

/* The last number of "0.20 0.18 0.12 1/80 11206". In some sandboxes always 0. */
int64_t proc_last_pid(const char *root)
{
    char text[128];
    if (proc_text_read_at(root, "/proc/loadavg", text, sizeof text) <= 0)
        return -1;
    const char *at = strrchr(text, ' ');
    int64_t pid = at ? proc_text_number(&at) : -1;
    return pid > 0 ? pid : -1;
}
