/* fuzz_npy.c: any bytes as a .npy file, and as a member of a .npz. What is accepted is read to its
 * last sample. A refusal has a message, and nothing is read outside the file. */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define OFFSET 7 /* of the member: no multiple of anything */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(struct leat_source *source)
{
    struct leat_loader_options options = {.batch_size = 7,
                                          .order = LEAT_ORDER_FULL,
                                          .threads = LEAT_THREADS_NONE,
                                          .memory_bytes = 1u << 30};
    struct leat_loader *loader;
    struct leat_batch *batch;
    int64_t samples = 0;
    if (leat_loader_new(source, &options, &loader, NULL) < 0)
        return; /* rows too large for the budget */
    leat_loader_start(loader, 0, NULL);
    while (leat_loader_next(loader, -1, &batch, NULL) > 0) {
        samples += batch->samples;
        leat_batch_unref(batch);
    }
    if (samples != leat_source_count(source))
        abort();
    leat_loader_close(loader);
}

/* The bytes in the middle of a file, as a member of a .npz. The result is the same, whatever lies
 * around them. */
static int open_member(const uint8_t *data, size_t size, int *ret_fd, struct leat_source **source,
                       struct leat_err *err)
{
    static const uint8_t others[4096];
    char path[64];
    int fd = *ret_fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (write(fd, others, OFFSET) != OFFSET || write(fd, data, size) != (ssize_t)size ||
        write(fd, others, sizeof others) != sizeof others)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct leat_npy_part part = {path, "member", OFFSET, (int64_t)size};
    return leat_source_npy_parts(&part, 1, source, err);
}

static void check_member(const uint8_t *data, size_t size, int expected, int64_t count)
{
    struct leat_source *source;
    struct leat_err err = {""};
    int fd, got = open_member(data, size, &fd, &source, &err);
    int trailing = expected == 0 && got == -LEAT_E_CORRUPT; /* a member must end with its array */
    if ((got != expected && !trailing) || (got == 0 && leat_source_count(source) != count))
        abort();
    if (got == 0) {
        read_all(source);
        leat_source_unref(source);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct leat_source *source;
    struct leat_err err = {""};
    int64_t count = 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *paths[] = {path};
    int got = leat_source_npy(paths, NULL, 1, &source, &err);
    if (got == 0) {
        count = leat_source_count(source);
        if ((uint64_t)count * leat_source_field(source, 0)->row_bytes > size)
            abort();
        read_all(source);
        leat_source_unref(source);
    } else if (!*err.text) {
        abort();
    }
    close(fd);
    if (size) /* an empty file is refused in another way */
        check_member(data, size, got, count);
    return 0;
}
