/* codec.h: from the bytes of one value to a row of a field.
 *
 *     value of a tar, LMDB or file  ──►  codec_decode()  ──►  the row in the slot, or a span
 *
 * Values are foreign bytes: every length is checked against what is there, and a value that is not
 * of the type and shape of its field is an error with a sentence, never a wrong row. A codec is set
 * up once with a first value, which tells the type and shape where the format does, and is then
 * read by all threads.
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
    uint8_t *pattern; /* TORCH: owned; what every value must have in common with the first */
    size_t pattern_bytes;
};

/* `first` may be NULL for kinds that learn nothing from it (BYTES, ARRAY, DECIMAL). `name` is for
 * the sentence. On failure nothing is left to free. */
int codec_init(struct codec *codec, const struct leat_codec *asked, const char *name,
               const uint8_t *first, uint64_t bytes, struct leat_err *err);
void codec_done(struct codec *codec); /* also of zeros */

/* Adds the field that the codec fills to a source of `count` samples. */
int codec_add_field(const struct codec *codec, struct leat_source *source, const char *name,
                    int64_t count, struct leat_err *err);

/* Fills `place`: a row, or the struct leat_span of a variable field. `bytes` may be unaligned.
 * `stays`: they live as long as the source, so a span may point into them. */
int codec_decode(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                 const struct source_request *request, uint8_t *place, struct leat_err *err);

#endif
