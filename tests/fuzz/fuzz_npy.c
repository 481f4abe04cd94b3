/* fuzz_npy.c: any bytes as a .npy file. What is let through is then read to its last sample: a
 * refusal has a sentence, and nothing is read outside the file. */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct leat_source *source;
    struct leat_err err = {""};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *paths[] = {path};
    if (leat_source_npy(paths, NULL, 1, &source, &err) == 0) {
        uint64_t bytes =
            (uint64_t)leat_source_count(source) * leat_source_field(source, 0)->row_bytes;
        if (bytes > size)
            abort();
        read_all(source);
        leat_source_unref(source);
    } else if (!*err.text) {
        abort();
    }
    close(fd);
    return 0;
}
