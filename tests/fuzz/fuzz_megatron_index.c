/* fuzz_megatron_index.c: any bytes as Megatron's index of a small file of tokens. What is accepted
 * is read to its last sample: as slices, as documents, and as packed rows of these. */
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

/* Reads a source; a refusal has a message. */
static void end_source(int made, struct leat_source *source, const struct leat_err *err)
{
    if (made < 0 && !*err->text)
        abort();
    if (made < 0)
        return;
    read_all(source);
    leat_source_unref(source);
}

static void try_documents(const char *bin, const char *idx, enum leat_dtype out)
{
    struct leat_source *source, *rows;
    struct leat_err err = {""};
    struct leat_documents asked = {.path = bin, .index_path = idx, .out = out};
    int made = leat_source_documents(&asked, &source, &err);
    if (made == 0) {
        struct leat_packed packed = {.length = 7, .shuffled = 1, .separated = 1, .pad_last = 1};
        int packs = leat_source_packed(source, &packed, &rows, &err);
        end_source(packs, rows, &err);
    }
    end_source(made, source, &err);
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
    int made = leat_source_tokens(&asked, &source, &err);
    end_source(made, source, &err);
    try_documents(bin, idx, LEAT_INT64);
    try_documents(bin, idx, LEAT_RAW);
    close(bin_fd);
    close(idx_fd);
    return 0;
}
