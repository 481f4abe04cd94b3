/* num.c: see num.h. */
#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

int num_parse_u64(const char *text, uint64_t *ret_value)
{
    if (!text || !isdigit((unsigned char)*text))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

int num_parse_i64(const char *text, int64_t *ret_value)
{
    if (!text || !(isdigit((unsigned char)*text) || *text == '-'))
        return -EINVAL;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || !isdigit((unsigned char)end[-1]))
        return -EINVAL;
    if (errno)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

int num_parse_f64(const char *text, double *ret_value)
{
    if (!text || !*text || isspace((unsigned char)*text))
        return -EINVAL;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (*end || end == text)
        return -EINVAL;
    if (errno || !isfinite(value))
        return -ERANGE;
    *ret_value = value;
    return 0;
}
