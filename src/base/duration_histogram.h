/* duration_histogram.h: how many durations lie in each of 1 312 buckets.
 *
 *     bucket    0 ... 31    32 ... 63    64 ... 95      ...     1280 ... 1311
 *     ns        itself      itself       64 ... 127     ...     2^44 ... 2^45 - 1 (9.8 hours)
 *                           32 buckets for each power of two, at most 3.2 % wide
 *
 * A histogram is an array of DURATION_BUCKETS counts. The recorder, the tables step_hist and
 * input_hist of run.db, and all quantiles of histograms use these buckets. Longer durations are in
 * the last one.
 */
#ifndef LEAT_BASE_DURATION_HISTOGRAM_H
#define LEAT_BASE_DURATION_HISTOGRAM_H

#include <stdint.h>

enum { DURATION_BUCKETS = 1312 };

static inline uint32_t duration_bucket_of(uint64_t ns)
{
    if (ns < 32)
        return (uint32_t)ns;
    uint32_t power = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t bucket = (power - 4) * 32 + (uint32_t)(ns >> (power - 5) & 31);
    return bucket < DURATION_BUCKETS ? bucket : DURATION_BUCKETS - 1;
}

uint64_t duration_bucket_low_ns(uint32_t bucket);    /* the shortest duration in it */
uint64_t duration_bucket_middle_ns(uint32_t bucket); /* the value that quantiles use for it */

/* Adds `from` to `to`. Counts stop at UINT64_MAX. */
void duration_histogram_merge(uint64_t to[DURATION_BUCKETS], const uint64_t from[DURATION_BUCKETS]);

/* The q-quantile (0..1), good to half the width of a bucket; NAN when all counts are 0. */
double duration_histogram_quantile_ns(const uint64_t counts[DURATION_BUCKETS], double q);

#endif
