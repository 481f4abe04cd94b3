/* codec.h: decodes the bytes of one value to a row of a field.
 *
 *     value of a tar, LMDB or file  ──►  codec_decode()  ──►  the row in the slot, or a span
 *
 * Values are foreign bytes: every length is checked against what is there, and a value that does
 * not have the type and shape of its field is an error with a message, never a wrong row. A codec
 * is set up once with a first value, which gives type and shape if the format does, and is then
 * used by all threads.
 *
 * Not detected: damage inside the numbers. None of the formats has a checksum.
 */
#ifndef LEAT_LOAD_CODEC_CODEC_H
#define LEAT_LOAD_CODEC_CODEC_H

#include "base/err.h"
#include "leat/loader.h"
#include "load/source.h"

struct codec {
    enum leat_codec_kind kind;
    enum leat_dtype dtype;
    uint64_t item_bytes;
    int variable;
    uint32_t dims; /* of one row */
    int64_t shape[LEAT_MAX_DIMS];
    uint64_t row_bytes;
    /* NPY: owned; the header of the first value, if its data has no gaps and this machine's byte
     * order. A value that begins with the same bytes needs no parsing. Else NULL. */
    uint8_t *pattern;
    size_t pattern_bytes;
    uint64_t pattern_items; /* rows by that header */
};

/* `first` may be NULL for BYTES, ARRAY and DECIMAL. `name` is for messages. On failure nothing is
 * left to free. */
int codec_init(struct codec *codec, const struct leat_codec *asked, const char *name,
               const uint8_t *first, uint64_t bytes, struct leat_err *err);
void codec_done(struct codec *codec); /* also of zeros */

/* Adds the field of the codec to a source of `count` samples. */
int codec_add_field(const struct codec *codec, struct leat_source *source, const char *name,
                    int64_t count, struct leat_err *err);

/* Fills `place`: a row, or the struct leat_span of a variable field. `bytes` may be unaligned.
 * `stays`: they live as long as the source or the batch, so a span may point to them (it does if
 * they are aligned). The message of a failure begins with "the value"; the source adds the place.
 */
int codec_decode(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                 const struct source_request *request, uint8_t *place, struct leat_err *err);

/* Whether the bytes of a value are the row: they may then be read straight into the place. */
int codec_is_plain(const struct codec *codec);

/* Rows of a value of `bytes` bytes in a variable field, if the size gives them; else -1. */
int64_t codec_items(const struct codec *codec, uint64_t bytes);

/* Cost of decoding one value in nanoseconds, to an order of magnitude; `bytes`: of a value of a
 * variable field. */
double codec_cost_ns(const struct codec *codec, uint64_t bytes);

#endif
