/* stats.h: the statistics of verdicts and comparisons. All take plain arrays; none allocates unless
 * noted. The input must not contain NaN. */
#ifndef LEAT_BASE_STATS_H
#define LEAT_BASE_STATS_H

#include <stddef.h>
#include <stdint.h>

/* The q-quantile (0..1) with linear interpolation between adjacent values, as numpy's default.
 * Reorders `values` (quick-select, O(n)). NaN when n is 0. */
double stats_quantile(double *values, size_t n, double q);

/* Several quantiles at once; `q` ascends. Each search skips the values below the quantile before
 * it. */
void stats_quantiles(double *values, size_t n, const double *q, size_t count,
                     double *ret_quantiles);

/* Theil-Sen: the median of the slopes between pairs of points, and the 95 % interval of that
 * median. Above 300 points, pairs are thinned evenly to keep O(90 000) work. Needs n >= 3.
 * 0, -EINVAL with too few points, -ENOMEM. Allocates and frees its own scratch. */
struct stats_slope {
    double slope, low, high; /* per unit of x */
};
int stats_theil_sen(const double *x, const double *y, size_t n, struct stats_slope *ret_slope);

/* A small counter-based generator (same seed, same numbers, on every machine), for bootstrap. */
uint64_t stats_random(uint64_t seed, uint64_t counter);

#endif
