/* unpack.h: bytes that arrive compressed, or not, and leave as they were.
 *
 *     read or downloaded  ──►  unpack_put()  ──►  out->write()
 *
 * What they are is seen from the first bytes, never from a name: gz, zstd, or plain. Both checks of
 * the formats are made: the CRC of gz always, zstd's where the frame has one. Nothing but the
 * window of the format is kept in memory.
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

/* One compressed format. `put` may be called with any cut of the bytes; `end` says whether they
 * ended where the format may. Sentences are without the name of the file. */
struct unpack_format {
    int (*open)(void **ret_state, struct leat_err *err);
    int (*put)(void *state, const uint8_t *bytes, size_t count, struct unpack_out *out,
               struct leat_err *err);
    int (*end)(void *state, struct leat_err *err);
    void (*close)(void *state);
};
extern const struct unpack_format unpack_gz, unpack_zstd;

/* 1: these first bytes are those of a compressed file, known or not. */
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
