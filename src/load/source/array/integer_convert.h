/* integer_convert.h: integers of a file made wider on their way into a batch.
 *
 * Tokens are kept in as few bytes as they fit into and used as int64. Only what loses nothing is
 * known: there is no function from uint64 to int64, nor from a type to a narrower one.
 */
#ifndef LEAT_LOAD_SOURCE_INTEGER_CONVERT_H
#define LEAT_LOAD_SOURCE_INTEGER_CONVERT_H

#include "leat/loader.h"

/* `from` may lie at any byte; `place` is aligned for its type, and they do not overlap. */
typedef void integer_convert_fn(void *place, const uint8_t *from, size_t count);

/* The function for this processor; NULL where there is none, as from a type to itself. */
integer_convert_fn *integer_convert_find(enum leat_dtype from, enum leat_dtype to);

int integer_convert_is_integer(enum leat_dtype dtype);

#endif
