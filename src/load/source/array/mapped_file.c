/* mapped_file.c: see mapped_file.h. */
#include "mapped_file.h"

#include "base/mem.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map(struct mapped_file *file, struct leat_err *err)
{
    struct stat info;
    if (fstat(file->fd, &info) < 0)
        return err_set(err, -errno, "%s: %s.", file->path, err_text(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(err, -LEAT_E_FOREIGN, "%s is not a regular file.", file->path);
    file->bytes = (uint64_t)info.st_size;
    file->device = info.st_dev;
    file->inode = info.st_ino;
    if (!file->bytes)
        return 0;
    void *base = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (base == MAP_FAILED)
        return err_set(err, -errno, "%s cannot be mapped: %s.", file->path, err_text(errno));
    file->base = base;
    return 0;
}

int mapped_file_open(struct mapped_file *file, const char *path, struct leat_err *err)
{
    *file = (struct mapped_file){.fd = -1, .path = mem_strdup(path)};
    if (!file->path)
        return err_set(err, -ENOMEM, "No memory to open %s.", path);
    /* Without O_NONBLOCK opening a pipe would wait for its writer. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int failed =
        file->fd < 0 ? err_set(err, -errno, "%s: %s.", path, err_text(errno)) : map(file, err);
    if (failed < 0)
        mapped_file_close(file);
    return failed;
}

int mapped_file_take(struct mapped_file *file, int fd, const char *path, struct leat_err *err)
{
    *file = (struct mapped_file){.fd = fd, .path = mem_strdup(path)};
    if (!file->path) {
        close(fd);
        return err_set(err, -ENOMEM, "No memory to open %s.", path);
    }
    int failed = map(file, err);
    if (failed < 0)
        mapped_file_close(file);
    return failed;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->base)
        munmap((void *)file->base, file->bytes);
    if (file->path && file->fd >= 0)
        close(file->fd);
    mem_free(file->path);
    *file = (struct mapped_file){.fd = -1};
}

void mapped_file_close_descriptor(struct mapped_file *file)
{
    if (file->path && file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

uint64_t mapped_file_extent(const struct mapped_file *file)
{
    struct stat info;
    if (file->fd < 0) { /* another file has the name now: ours can no longer be cut short by it */
        if (stat(file->path, &info) < 0 || info.st_dev != file->device ||
            info.st_ino != file->inode)
            return file->bytes;
    } else if (fstat(file->fd, &info) < 0) {
        return 0;
    }
    if (info.st_size < 0)
        return 0;
    return (uint64_t)info.st_size < file->bytes ? (uint64_t)info.st_size : file->bytes;
}
