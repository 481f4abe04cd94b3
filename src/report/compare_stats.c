/* compare_stats.c: is the second run slower, or is the difference chance?
 *
 * The figure is the ratio of the two medians, with a 95 % interval by bootstrap: each run is
 * resampled 2000 times, each pair of resamples gives a ratio, and the middle 95 % of them are the
 * interval.
 *
 * Steps are not independent: a slow disk, a hot CPU or another job makes many consecutive steps
 * slow. A bootstrap of single steps would give an interval far too narrow. So blocks of consecutive
 * steps are drawn (circular block bootstrap), as long as the dependence lasts. The length is the
 * automatic choice of Politis and White (2004, corrected 2009), computed on the series that the
 * median depends on: whether a step is above or below it.
 *
 *     run:      s0 s1 s2 s3 s4 s5 s6 s7 s8 s9           blocks of 3
 *     resample: s4 s5 s6 | s9 s0 s1 | s5 s6 s7 | s2     starts drawn at random, wrapping round
 *
 * The interval covers the variation inside the two runs. Differences between runs of the same code
 * (another node, a warm cache) are not in it.
 *
 * Cost: each series is sorted once; a resample counts how often each rank was drawn and finds the
 * middle in O(n). With 4096 values and 2000 resamples that is about 50 ms per run of any length.
 */
#include "report/compare.h"

#include "base/mem.h"
#include "base/stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fixed, so that a comparison can be repeated. */
static const uint64_t seed_before = 0x6c656174u, seed_after = 0x6d696c6cu;

/* With fewer blocks there is nothing to resample, however long the dependence lasts. */
enum { LEAST_BLOCKS = 4 };

struct ranked {
    double value;
    uint32_t index;
};

static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static double autocovariance(const double *x, size_t n, size_t lag)
{
    double sum = 0;
    for (size_t i = lag; i < n; i++)
        sum += x[i] * x[i - lag];
    return sum / (double)n;
}

/* The smallest lag after which K_N consecutive correlations are insignificant: the length of the
 * dependence. As in the paper, K_N = max(5, sqrt(log10 n)) and c = 2. */
static size_t last_lag(const double *x, size_t n, size_t most)
{
    double variance = autocovariance(x, n, 0);
    double bound = 2 * sqrt(log10((double)n) / (double)n) * variance;
    size_t quiet = 0;
    for (size_t lag = 1; lag <= most; lag++) {
        quiet = fabs(autocovariance(x, n, lag)) < bound ? quiet + 1 : 0;
        if (quiet == 5)
            return lag - 5;
    }
    return most;
}

static size_t block_length(double *x, size_t n)
{
    size_t most = n / 4 < 200 ? n / 4 : 200;
    size_t m = last_lag(x, n, most);
    /* In a short run a relevant dependence may not be significant, so blocks have at least the
     * usual cube root of n. */
    double length = cbrt((double)n), limit = (double)n / LEAST_BLOCKS;
    /* The flat-top window: weight 1 up to lag m, falling to 0 at 2m. */
    double g = 0, spectrum = autocovariance(x, n, 0);
    for (size_t lag = 1; lag <= 2 * m && lag < n; lag++) {
        double part = (double)lag / (double)(2 * m);
        double weight = part <= 0.5 ? 1 : 2 * (1 - part);
        double covariance = autocovariance(x, n, lag);
        g += 2 * weight * (double)lag * covariance;
        spectrum += 2 * weight * covariance;
    }
    if (spectrum > 0)
        length = fmax(length, cbrt(2 * g * g / (4.0 / 3 * spectrum * spectrum) * (double)n));
    length = ceil(fmin(length, limit));
    return length > 1 ? (size_t)length : 1;
}

size_t ratio_block_length(const double *values, size_t n)
{
    double *x = mem_alloc_array(n + 1, sizeof *x);
    if (!x || n < RATIO_LEAST_STEPS) {
        mem_free(x);
        return 1;
    }
    memcpy(x, values, n * sizeof *x);
    double median = stats_quantile(x, n, 0.5);
    double above = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = values[i] > median;
        above += x[i];
    }
    for (size_t i = 0; i < n; i++)
        x[i] -= above / (double)n;
    size_t length = above > 0 ? block_length(x, n) : 1;
    mem_free(x);
    return length;
}

/* The median of one resample, from how often each rank was drawn. */
static double median_of_counts(const struct ranked *sorted, const uint32_t *drawn, size_t n)
{
    size_t seen = 0, i = 0, half = (n + 1) / 2;
    while ((seen += drawn[i]) < half)
        i++;
    double low = sorted[i].value;
    if (n % 2 == 1 || seen > half)
        return low;
    do
        i++;
    while (drawn[i] == 0);
    return (low + sorted[i].value) / 2;
}

static int resample(const double *values, size_t n, size_t block, uint64_t seed,
                    double medians[static RATIO_RESAMPLES])
{
    struct ranked *sorted = mem_alloc_array(n, sizeof *sorted);
    uint32_t *rank_of = mem_alloc_array(n, sizeof *rank_of);
    uint32_t *drawn = mem_alloc_array(n, sizeof *drawn);
    int result = sorted && rank_of && drawn ? 0 : -ENOMEM;
    if (result < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        sorted[i] = (struct ranked){values[i], (uint32_t)i};
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 0; i < n; i++)
        rank_of[sorted[i].index] = (uint32_t)i;
    uint64_t counter = 0;
    for (int r = 0; r < RATIO_RESAMPLES; r++) {
        memset(drawn, 0, n * sizeof *drawn);
        for (size_t got = 0; got < n;) {
            /* The upper half of a product picks a start without a division. */
            size_t at = (size_t)((unsigned __int128)stats_random(seed, counter++) * n >> 64);
            for (size_t k = 0; k < block && got < n; k++, got++) {
                drawn[rank_of[at]]++;
                at = at + 1 == n ? 0 : at + 1;
            }
        }
        medians[r] = median_of_counts(sorted, drawn, n);
    }
out:
    mem_free(sorted);
    mem_free(rank_of);
    mem_free(drawn);
    return result;
}

/* A copy with one value of each of `most` equal stretches, drawn at random: a fixed stride could
 * coincide with a period in the steps (a log line every 100). */
static double *thin(const double *values, size_t count, size_t most, uint64_t seed, size_t *ret_n)
{
    size_t n = count < most ? count : most;
    double *out = mem_alloc_array(n + 1, sizeof *out);
    for (size_t i = 0; out && i < n; i++) {
        size_t from = count * i / n, to = count * (i + 1) / n;
        out[i] = values[from + stats_random(seed ^ 1, i) % (to - from)];
    }
    *ret_n = n;
    return out;
}

/* With few blocks the bootstrap interval is too narrow, by the ratio of Student's t to the normal
 * distribution. t by its expansion in 1/freedom (Fisher and Cornish), exact to 4 % from 3 on. */
static double widening(const struct ratio *r)
{
    double b = (double)r->n_before / (double)r->block_before;
    double a = (double)r->n_after / (double)r->block_after;
    double freedom = fmax(fmin(a, b) - 1, 1);
    return 1 + 2.37 / 1.96 / freedom + 2.82 / 1.96 / (freedom * freedom);
}

int ratio_of_medians(const double *before, size_t before_count, const double *after,
                     size_t after_count, size_t most_values, struct ratio *ret_ratio)
{
    struct ratio r = {NAN, NAN, NAN, 0, 0, 1, 1};
    double *b = thin(before, before_count, most_values, seed_before, &r.n_before);
    double *a = thin(after, after_count, most_values, seed_after, &r.n_after);
    double *medians = mem_alloc_array(2 * RATIO_RESAMPLES, sizeof *medians);
    int result = b && a && medians ? 0 : -ENOMEM;
    if (result < 0 || r.n_before < RATIO_LEAST_STEPS || r.n_after < RATIO_LEAST_STEPS)
        goto out;
    r.block_before = ratio_block_length(b, r.n_before);
    r.block_after = ratio_block_length(a, r.n_after);
    double *of_after = medians + RATIO_RESAMPLES;
    result = resample(b, r.n_before, r.block_before, seed_before, medians);
    if (result == 0)
        result = resample(a, r.n_after, r.block_after, seed_after, of_after);
    double middle = stats_quantile(b, r.n_before, 0.5);
    if (result < 0 || !(middle > 0))
        goto out;
    int whole = 1;
    for (int i = 0; i < RATIO_RESAMPLES; i++) {
        whole = whole && medians[i] > 0;
        medians[i] = of_after[i] / medians[i];
    }
    if (whole) {
        r.ratio = stats_quantile(a, r.n_after, 0.5) / middle;
        double wide = widening(&r);
        r.low = r.ratio - wide * (r.ratio - stats_quantile(medians, RATIO_RESAMPLES, 0.025));
        r.high = r.ratio + wide * (stats_quantile(medians, RATIO_RESAMPLES, 0.975) - r.ratio);
    }
out:
    mem_free(b);
    mem_free(a);
    mem_free(medians);
    if (result == 0)
        *ret_ratio = r;
    return result;
}
