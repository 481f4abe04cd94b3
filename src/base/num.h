/* num.h: parses a text that is exactly one number: no leading blanks, no trailing bytes, no
 * overflow. 0 on success, -EINVAL or -ERANGE otherwise, and then *ret is untouched. */
#ifndef LEAT_BASE_NUM_H
#define LEAT_BASE_NUM_H

#include <stdint.h>

int num_parse_u64(const char *text, uint64_t *ret_value);
int num_parse_i64(const char *text, int64_t *ret_value);
int num_parse_f64(const char *text, double *ret_value); /* finite only */

#endif
