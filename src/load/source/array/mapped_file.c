/* mapped_file.c: see mapped_file.h. */
#include "mapped_file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- SIGBUS ---- */

/* The handler may run at any time, so ranges are in a list without a lock. They are never freed: a
 * range without bytes is used again. */
struct mapped_range {
    struct mapped_range *next;
    atomic_int used;
    _Atomic uintptr_t start;
    _Atomic uint64_t bytes;     /* 0: none */
    _Atomic uint64_t lost_from; /* offset of the first page that could not be read */
};

static _Atomic(struct mapped_range *) ranges;
static struct sigaction handler_before;
static uintptr_t page_bytes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int map_zeros(uintptr_t address)
{
    for (struct mapped_range *r = atomic_load(&ranges); r; r = r->next) {
        uint64_t bytes = atomic_load(&r->bytes);
        uintptr_t start = atomic_load(&r->start);
        if (address < start ||
            address - start >= (bytes + page_bytes - 1) / page_bytes * page_bytes)
            continue;
        uint64_t offset = (address - start) / page_bytes * page_bytes;
        uint64_t lost = atomic_load(&r->lost_from);
        while (offset < lost && !atomic_compare_exchange_weak(&r->lost_from, &lost, offset))
            ;
        /* The system call itself: a sanitizer's mmap() must not run in a signal handler, and takes
         * the mapping for a write that races with other readers of the page. The kernel replaces
         * the page at once; those readers get zeros, too. */
        return syscall(SYS_mmap, start + offset, page_bytes, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
    }
    return 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    if (info->si_code > 0 && map_zeros((uintptr_t)info->si_addr)) { /* not sent by kill() */
        errno = saved;
        return;
    }
    errno = saved;
    if (handler_before.sa_flags & SA_SIGINFO) {
        handler_before.sa_sigaction(number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(number);
    } else {
        sigaction(SIGBUS, &handler_before, NULL);
        if (info->si_code <= 0) /* else the access is repeated */
            raise(number);
    }
}

static void install_handler(void)
{
    struct sigaction ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &handler_before) == 0)
        sigaction(SIGBUS, &ours, NULL);
}

static struct mapped_range *unused_range(void)
{
    for (struct mapped_range *r = atomic_load(&ranges); r; r = r->next) {
        int used = 0;
        if (atomic_compare_exchange_strong(&r->used, &used, 1))
            return r;
    }
    struct mapped_range *r = mem_alloc(sizeof *r);
    if (!r)
        return NULL;
    atomic_store(&r->used, 1);
    r->next = atomic_load(&ranges);
    while (!atomic_compare_exchange_weak(&ranges, &r->next, r))
        ;
    return r;
}

static int watch(struct mapped_file *file)
{
    pthread_once(&once, install_handler);
    if (!(file->range = unused_range()))
        return -ENOMEM;
    atomic_store(&file->range->lost_from, UINT64_MAX);
    atomic_store(&file->range->start, (uintptr_t)file->base);
    atomic_store(&file->range->bytes, file->bytes);
    return 0;
}

static void unwatch(struct mapped_file *file)
{
    if (!file->range)
        return;
    atomic_store(&file->range->bytes, 0);
    atomic_store(&file->range->used, 0);
    file->range = NULL;
}

/* ---- the file ---- */

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
    if (watch(file) < 0)
        return err_set(err, -ENOMEM, "No memory to open %s.", file->path);
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
    unwatch(file);
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

/* By the size of the file alone. */
static uint64_t bytes_now(const struct mapped_file *file)
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

uint64_t mapped_file_extent(const struct mapped_file *file)
{
    uint64_t lost_from = file->range ? atomic_load(&file->range->lost_from) : UINT64_MAX;
    uint64_t bytes = bytes_now(file);
    return bytes < lost_from ? bytes : lost_from;
}
