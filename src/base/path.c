/* path.c: see path.h. */
#include "base/path.h"

#include "base/mem.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *path_join(const char *first, ...)
{
    struct str s = {0};
    va_list args;
    va_start(args, first);
    for (const char *part = first; part; part = va_arg(args, const char *)) {
        if (s.length && s.text[s.length - 1] != '/')
            str_add(&s, "/");
        str_add(&s, part);
    }
    va_end(args);
    if (s.failed)
        str_done(&s);
    return s.text;
}

int path_make_dirs(const char *path, struct leat_err *err)
{
    char *copy = mem_strdup(path);
    if (!copy)
        return err_set(err, -ENOMEM, "Out of memory.");
    int result = 0;
    size_t length = strlen(copy);
    for (size_t i = 1; i <= length && result == 0; i++) {
        if (copy[i] != '/' && copy[i] != 0)
            continue;
        char end = copy[i];
        copy[i] = 0;
        struct stat st;
        int code = mkdir(copy, 0700) < 0 ? errno : 0;
        /* On a read-only disk mkdir returns EROFS for an existing folder too. */
        if (code && code != EEXIST && stat(copy, &st) < 0)
            result = err_set(err, -code, "The folder %s cannot be made: %s.", copy, err_text(code));
        else if (!end && (stat(copy, &st) < 0 || !S_ISDIR(st.st_mode)))
            result = err_set(err, -ENOTDIR, "%s is not a folder.", copy);
        copy[i] = end;
    }
    mem_free(copy);
    return result;
}

int path_read_file(const char *path, size_t most_bytes, char **ret_text, size_t *ret_bytes,
                   struct leat_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, -errno, "%s cannot be opened: %s.", path, err_text(errno));
    char *text = NULL;
    size_t used = 0, capacity = 0;
    int result = 0;
    for (;;) {
        if (mem_reserve(&text, &capacity, used + 4097, 1) < 0) {
            result = err_set(err, -ENOMEM, "Out of memory while reading %s.", path);
            break;
        }
        ssize_t got = read(fd, text + used, capacity - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = err_set(err, -errno, "%s cannot be read: %s.", path, err_text(errno));
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used > most_bytes) {
            result = err_set(err, -EFBIG, "%s is larger than %zu bytes.", path, most_bytes);
            break;
        }
    }
    close(fd);
    if (result < 0) {
        mem_free(text);
        return result;
    }
    text[used] = 0;
    *ret_text = text;
    *ret_bytes = used;
    return 0;
}

int path_write_file(const char *path, const void *bytes, size_t count, struct leat_err *err)
{
    struct str temporary = {0};
    str_addf(&temporary, "%s.tmp", path);
    if (temporary.failed) {
        str_done(&temporary);
        return err_set(err, -ENOMEM, "Out of memory while writing %s.", path);
    }
    int result = 0;
    int fd = open(temporary.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        result = -errno;
    } else {
        const char *from = bytes;
        while (count > 0 && result == 0) {
            ssize_t put = write(fd, from, count);
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0) {
                result = -errno;
            } else {
                from += put;
                count -= (size_t)put;
            }
        }
        if (result == 0 && fsync(fd) < 0 && errno != EINVAL)
            result = -errno;
        if (close(fd) < 0 && result == 0) /* NFS reports a full disk here */
            result = -errno;
        if (result == 0 && rename(temporary.text, path) < 0)
            result = -errno;
        if (result < 0)
            unlink(temporary.text);
    }
    str_done(&temporary);
    return result < 0 ? err_set(err, result, "%s cannot be written: %s.", path, err_text(result))
                      : 0;
}

const char *path_temporary(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder == '/' ? folder : "/tmp";
}

/* A random name: other users could create a folder with a predictable name first. */
int path_make_temporary(const char *name, char **ret_path)
{
    const char *const parents[] = {path_temporary(), "/tmp"};
    int result = -ENOENT;
    for (size_t i = 0; i < 2 && result < 0; i++) {
        struct str path = {0};
        str_addf(&path, "%s/leat-%.200s-XXXXXX", parents[i], name);
        result = path.failed ? -ENOMEM : mkdtemp(path.text) ? 0 : -errno;
        if (result < 0)
            str_done(&path);
        else
            *ret_path = path.text;
    }
    return result;
}

int path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}
