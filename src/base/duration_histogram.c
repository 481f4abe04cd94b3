/* duration_histogram.c: see duration_histogram.h. */
#include "base/duration_histogram.h"

#include <math.h>

uint64_t duration_bucket_low_ns(uint32_t bucket)
{
    return bucket < 32 ? bucket : (uint64_t)(32 + bucket % 32) << (bucket / 32 - 1);
}

uint64_t duration_bucket_middle_ns(uint32_t bucket)
{
    uint64_t width = bucket < 64 ? 1 : (uint64_t)1 << (bucket / 32 - 1);
    return duration_bucket_low_ns(bucket) + width / 2;
}

void duration_histogram_merge(uint64_t to[DURATION_BUCKETS], const uint64_t from[DURATION_BUCKETS])
{
    for (int i = 0; i < DURATION_BUCKETS; i++)
        to[i] = to[i] + from[i] < to[i] ? UINT64_MAX : to[i] + from[i];
}

double duration_histogram_quantile_ns(const uint64_t counts[DURATION_BUCKETS], double q)
{
    double total = 0, before = 0;
    for (int i = 0; i < DURATION_BUCKETS; i++)
        total += (double)counts[i];
    for (uint32_t i = 0; i < DURATION_BUCKETS && total > 0; i++)
        if ((before += (double)counts[i]) > 0 && before >= q * total)
            return (double)duration_bucket_middle_ns(i);
    return NAN;
}
