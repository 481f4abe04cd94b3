/* fuzz_tar.c: any bytes as a shard, plain or compressed. What is accepted is read to its last
 * sample. A refusal and a bad sample have a message, and nothing is read outside the file. Each
 * input is also tried with corrected checksums, or few would be accepted.
 *
 * A file is mapped in whole pages, so a read after its end may go unseen: headers and index are
 * also read from memory of the exact size, where AddressSanitizer sees it. */
#include "leat/loader.h"

#include "load/source/tar/tar_header.h"
#include "load/source/tar/tar_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(struct leat_source *source)
{
    int64_t count = leat_source_count(source);
    for (int64_t i = 0; i < count; i++) {
        struct leat_batch *batch;
        struct leat_err err = {""};
        if (leat_source_read(source, &i, 1, NULL, &batch, &err) < 0) {
            if (!*err.text)
                abort();
            continue;
        }
        uint64_t sum = 0;
        for (uint32_t f = 0; f < batch->fields; f++) {
            const struct leat_field *field = leat_source_field(source, f);
            const struct leat_span *span = batch->data[f];
            const uint8_t *bytes = field->variable ? span->data : batch->data[f];
            uint64_t n = field->row_bytes * (field->variable ? (uint64_t)span->items : 1);
            for (uint64_t b = 0; b < n; b++)
                sum += bytes[b];
        }
        leat_batch_unref(batch);
        if (sum == UINT64_MAX) /* never: so that the sum is computed */
            abort();
    }
}

static void try(const char *path, const struct leat_tar_field *fields, uint32_t count, int skip)
{
    struct leat_source *source;
    struct leat_err err = {""};
    const char *shards[] = {path};
    struct leat_tar tar = {.shards = shards,
                           .shard_count = 1,
                           .fields = fields,
                           .field_count = count,
                           .keys = 1,
                           .skip_missing = skip,
                           .cache_bytes = 4 << 20,
                           .threads = 1};
    if (leat_source_tar(&tar, &source, &err) == 0) {
        read_all(source);
        leat_source_unref(source);
    } else if (!*err.text) {
        abort();
    }
}

static void index_bytes(const uint8_t *data, size_t size)
{
    struct tar_wanted wanted = {
        .extensions = {"cls", "npy", "bin"},
          .fields = 3
    };
    char extensions[LEAT_MAX_FIELDS][LEAT_NAME_BYTES];
    struct tar_index index;
    tar_index_first("x", data, size, extensions, NULL);
    if (tar_index_parse(&index, "x", data, size, &wanted, NULL) < 0)
        return;
    for (size_t i = 0; i < index.count; i++) {
        const char *key;
        uint64_t start = (uint64_t)index.starts[i] * TAR_BLOCK;
        struct tar_walk walk = {.path = "x", .base = data, .bytes = size, .at = start};
        if (tar_index_key(&walk, &key, NULL) < 0)
            abort();
        for (uint32_t f = 0; f < 3; f++) {
            const struct tar_part *part = &index.parts[3 * i + f];
            if (part->block && (uint64_t)part->block * TAR_BLOCK + part->bytes > size)
                abort();
        }
    }
    tar_index_done(&index);
}

static void try_bytes(const uint8_t *data, size_t size)
{
    static const struct leat_tar_field some[] = {
        {"cls", {.kind = LEAT_CODEC_DECIMAL}},
        {"bin", {.kind = LEAT_CODEC_BYTES}  }
    };
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        try(path, NULL, 0, 0);
        try(path, some, 2, 1);
    }
    close(fd);
}

/* The checksum of every block that looks like a header. */
static void put_right(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned sum = 0;
        if (memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += data[at + i];
        char text[8];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(data + at + 148, text, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    index_bytes(copy, size);
    try_bytes(copy, size);
    put_right(copy, size);
    index_bytes(copy, size);
    try_bytes(copy, size);
    free(copy);
    return 0;
}
