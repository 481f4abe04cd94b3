/* codec.h: from the bytes of one value to a row of a field.
 *
 *     value of a tar, LMDB or file  ──►  codec_decode()  ──►  the row in the slot, or a span
 *
 * Values are foreign bytes: every length is checked against what is there, and a value that is not
 * of the type and shape of its field is an error with a sentence, never a wrong row. A codec is set
 * up once with a first value, which tells the type and shape where the format does, and is then
 * read by all threads.
 *
 * None of the formats has a checksum that is looked at: damage inside the numbers themselves cannot
 * be seen, and is delivered as it lies there.
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
    /* NPY: owned; the header of the first value, all of whose data lies without gaps in this
     * machine's byte order. A value that begins with the same bytes needs no parsing. NULL: none.
     */
    uint8_t *pattern;
    size_t pattern_bytes;
    uint64_t pattern_items; /* rows that it announces */
};

/* `first` may be NULL for kinds that learn nothing from it (BYTES, ARRAY, DECIMAL). `name` says
 * where it lies, for the sentence. On failure nothing is left to free. */
int codec_init(struct codec *codec, const struct leat_codec *asked, const char *name,
               const uint8_t *first, uint64_t bytes, struct leat_err *err);
void codec_done(struct codec *codec); /* also of zeros */

/* Adds the field that the codec fills to a source of `count` samples. */
int codec_add_field(const struct codec *codec, struct leat_source *source, const char *name,
                    int64_t count, struct leat_err *err);

/* Fills `place`: a row, or the struct leat_span of a variable field. `bytes` may be unaligned.
 * `stays`: they live as long as the source or the batch, so a span may point into them (it does
 * where the items are aligned). The sentence of a failure begins with "the value"; the source puts
 * before it where that lies. */
int codec_decode(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                 const struct source_request *request, uint8_t *place, struct leat_err *err);

/* Whether a value's bytes are the row itself, and nothing but it: they may then be read straight
 * into the place. */
int codec_is_plain(const struct codec *codec);

/* Rows of a value of `bytes` bytes in a variable field, where its size alone tells; else -1. */
int64_t codec_items(const struct codec *codec, uint64_t bytes);

/* What one value costs to decode, in nanoseconds, to an order of magnitude; variable fields: of a
 * value of `bytes`. */
double codec_cost_ns(const struct codec *codec, uint64_t bytes);

#endif
