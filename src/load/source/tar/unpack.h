/* unpack.h: decompresses bytes as they arrive.
 *
 *     read or downloaded  ──►  unpack_put()  ──►  out->write()
 *
 * The format is found by the first bytes, never by a name: gz, zstd, or plain. The checksums of the
 * formats are verified: gz always has one, zstd if the frame has one. Only the window of the format
 * is kept in memory.
 */
#ifndef LEAT_LOAD_SOURCE_UNPACK_H
#define LEAT_LOAD_SOURCE_UNPACK_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define UNPACK_MAGIC_BYTES 6

struct unpack_out {
    int (*write)(struct unpack_out *out, const uint8_t *bytes, size_t count, struct leat_err *err);
};

/* One compressed format. `put` may be called with any part of the bytes; `end` checks that they are
 * complete. Messages do not name the file. */
struct unpack_format {
    int (*open)(void **ret_state, struct leat_err *err);
    int (*put)(void *state, const uint8_t *bytes, size_t count, struct unpack_out *out,
               struct leat_err *err);
    int (*end)(void *state, struct leat_err *err);
    void (*close)(void *state);
};
extern const struct unpack_format unpack_gz, unpack_zstd;

/* 1: these are the first bytes of a compressed file, of a known format or not. */
int unpack_is_packed(const uint8_t *bytes, size_t count);

/* Begin with zeros and `out`. */
struct unpack {
    struct unpack_out *out;
    const struct unpack_format *format; /* NULL: plain, or not known yet */
    void *state;
    int begun;
    uint8_t magic[UNPACK_MAGIC_BYTES]; /* the first bytes, until there are enough */
    size_t magic_bytes;
};

int unpack_put(struct unpack *unpack, const uint8_t *bytes, size_t count, struct leat_err *err);
int unpack_end(struct unpack *unpack, struct leat_err *err);
void unpack_done(struct unpack *unpack); /* leaves zeros and `out` */

#endif
