/* proc_text.c: see proc_text.h. */
#include "base/proc_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "/" + "/proc/1" is "/proc/1"; "tests/root" + "/proc/1" is "tests/root/proc/1". */
static int under(const char *root, const char *path, char *ret_path, size_t bytes)
{
    size_t length = strlen(root);
    while (length > 0 && root[length - 1] == '/')
        length--;
    int need =
        snprintf(ret_path, bytes, "%.*s%s%s", (int)length, root, *path == '/' ? "" : "/", path);
    return need < 0 || (size_t)need >= bytes ? -ENAMETOOLONG : 0;
}

int proc_text_open_dir(const char *root, const char *path)
{
    char whole[PATH_MAX];
    int result = under(root, path, whole, sizeof whole);
    if (result < 0)
        return result;
    int fd = open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

ssize_t proc_text_read(int dir_fd, const char *name, char *buffer, size_t bytes)
{
    /* O_NONBLOCK: a recorded root may hold a pipe where a file should be. */
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    size_t used = 0;
    ssize_t result = 0;
    while (used < bytes - 1) {
        ssize_t got = read(fd, buffer + used, bytes - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = -errno; /* ESRCH: the process went between open and read */
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    buffer[used] = 0;
    return result < 0 ? result : (ssize_t)used;
}

ssize_t proc_text_read_at(const char *root, const char *path, char *buffer, size_t bytes)
{
    char whole[PATH_MAX];
    int result = under(root, path, whole, sizeof whole);
    return result < 0 ? result : proc_text_read(AT_FDCWD, whole, buffer, bytes);
}

int64_t proc_text_number(const char **at)
{
    const char *p = *at;
    while (*p == ' ' || *p == '\t')
        p++;
    if (*p < '0' || *p > '9')
        return -1;
    int64_t value = 0;
    int fits = 1;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value))
            fits = 0;
    *at = p;
    return fits ? value : -1;
}

int64_t proc_text_field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line && *line;) {
        if (strncmp(line, key, length) == 0) {
            const char *at = line + length;
            if (*at == ' ' || *at == '\t' || key[length - 1] == ':' || key[length - 1] == '=')
                return proc_text_number(&at);
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return -1;
}

int64_t proc_text_scale(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

int64_t proc_text_sum(int64_t a, int64_t b)
{
    int64_t sum;
    return a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum) ? -1 : sum;
}
