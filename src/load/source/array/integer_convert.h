/* integer_convert.h: converts integers of a file to a wider type of a batch.
 *
 * Tokens are stored in as few bytes as possible and used as int64. Only lossless conversions exist:
 * none from uint64 to int64, nor to a narrower type.
 */
#ifndef LEAT_LOAD_SOURCE_INTEGER_CONVERT_H
#define LEAT_LOAD_SOURCE_INTEGER_CONVERT_H

#include "leat/loader.h"

/* `from` may be unaligned; `place` is aligned; they do not overlap. */
typedef void integer_convert_fn(void *place, const uint8_t *from, size_t count);

/* The function for this processor; NULL when there is none, as from a type to itself. */
integer_convert_fn *integer_convert_find(enum leat_dtype from, enum leat_dtype to);

int integer_convert_is_integer(enum leat_dtype dtype);

#endif
