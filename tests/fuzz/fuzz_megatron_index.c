/* fuzz_megatron_index.c: any bytes as Megatron's index of a small file of tokens. What is let
 * through is then read to its last sample. */
#include "leat/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int write_file(const void *bytes, size_t size, char *path, size_t path_bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, bytes, size) == (ssize_t)size)
        snprintf(path, path_bytes, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_all(struct leat_source *source)
{
    struct leat_loader_options options = {.batch_size = 5, .threads = LEAT_THREADS_NONE};
    struct leat_loader *loader;
    struct leat_batch *batch;
    if (leat_loader_new(source, &options, &loader, NULL) < 0)
        abort();
    leat_loader_start(loader, 0, NULL);
    while (leat_loader_next(loader, -1, &batch, NULL) > 0)
        leat_batch_unref(batch);
    leat_loader_close(loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t tokens[4096];
    char bin[64] = "", idx[64] = "";
    struct leat_source *source;
    struct leat_err err = {""};
    int bin_fd = write_file(tokens, sizeof tokens, bin, sizeof bin);
    int idx_fd = write_file(data, size, idx, sizeof idx);
    struct leat_tokens asked = {
        .path = bin, .index_path = idx, .out = LEAT_INT64, .length = 10, .stride = 7};
    if (leat_source_tokens(&asked, &source, &err) == 0) {
        read_all(source);
        leat_source_unref(source);
    } else if (!*err.text) {
        abort();
    }
    close(bin_fd);
    close(idx_fd);
    return 0;
}
