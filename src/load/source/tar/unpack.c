/* unpack.c: see unpack.h. */
#include "unpack.h"

#include <string.h>

/* Formats without functions are recognised in order to be refused by name. */
static const struct {
    const char *name;
    size_t bytes;
    uint8_t magic[UNPACK_MAGIC_BYTES];
    uint8_t mask_first; /* bits of the first byte that differ between files */
    const struct unpack_format *format;
} formats[] = {
    {"gz",    2, {0x1f, 0x8b},                  0,    &unpack_gz  },
    {"zstd",  4, {0x28, 0xb5, 0x2f, 0xfd},      0,    &unpack_zstd},
    {"zstd",  4, {0x50, 0x2a, 0x4d, 0x18},      0x0f, &unpack_zstd}, /* a frame to skip */
    {"xz",    6, {0xfd, '7', 'z', 'X', 'Z', 0}, 0,    NULL        },
    {"bzip2", 3, {'B', 'Z', 'h'},               0,    NULL        },
    {"lz4",   4, {0x04, 0x22, 0x4d, 0x18},      0,    NULL        },
    {"zip",   4, {'P', 'K', 3, 4},              0,    NULL        },
};

static int find_format(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (count >= formats[i].bytes &&
            (bytes[0] & ~formats[i].mask_first) == formats[i].magic[0] &&
            memcmp(bytes + 1, formats[i].magic + 1, formats[i].bytes - 1) == 0)
            return (int)i;
    return -1;
}

int unpack_is_packed(const uint8_t *bytes, size_t count)
{
    return find_format(bytes, count) >= 0;
}

static int begin(struct unpack *unpack, struct leat_err *err)
{
    int found = find_format(unpack->magic, unpack->magic_bytes);
    unpack->begun = 1;
    if (found < 0)
        return 0;
    if (!formats[found].format)
        return err_set(err, -LEAT_E_FOREIGN,
                       "it is compressed with %s; shards are plain, gz or zstd.",
                       formats[found].name);
    int failed = formats[found].format->open(&unpack->state, err);
    if (!failed)
        unpack->format = formats[found].format;
    return failed;
}

static int pass_on(struct unpack *unpack, const uint8_t *bytes, size_t count, struct leat_err *err)
{
    if (!count)
        return 0;
    if (unpack->format)
        return unpack->format->put(unpack->state, bytes, count, unpack->out, err);
    return unpack->out->write(unpack->out, bytes, count, err);
}

int unpack_put(struct unpack *unpack, const uint8_t *bytes, size_t count, struct leat_err *err)
{
    while (!unpack->begun && count) {
        unpack->magic[unpack->magic_bytes++] = *bytes++;
        count--;
        if (unpack->magic_bytes < UNPACK_MAGIC_BYTES)
            continue;
        int failed = begin(unpack, err);
        if (!failed)
            failed = pass_on(unpack, unpack->magic, unpack->magic_bytes, err);
        if (failed < 0)
            return failed;
    }
    return pass_on(unpack, bytes, count, err);
}

int unpack_end(struct unpack *unpack, struct leat_err *err)
{
    int failed = 0;
    if (!unpack->begun) { /* shorter than the magic bytes */
        failed = begin(unpack, err);
        if (!failed)
            failed = pass_on(unpack, unpack->magic, unpack->magic_bytes, err);
    }
    return failed < 0 || !unpack->format ? failed : unpack->format->end(unpack->state, err);
}

void unpack_done(struct unpack *unpack)
{
    if (unpack->format)
        unpack->format->close(unpack->state);
    *unpack = (struct unpack){.out = unpack->out};
}
