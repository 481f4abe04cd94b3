/* stats.c: see stats.h. */
#include "base/stats.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b;
    *b = t;
}

/* Places the k-th smallest value at index k, smaller ones before it, larger ones after it.
 * Median-of-three pivots and a three-way split keep runs of equal values (common in step times
 * rounded to the clock) linear. */
static double select_kth(double *v, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (v[mid] < v[low])
            swap(&v[mid], &v[low]);
        if (v[high] < v[low])
            swap(&v[high], &v[low]);
        if (v[high] < v[mid])
            swap(&v[high], &v[mid]);
        double pivot = v[mid];
        size_t less = low, i = low, more = high;
        while (i <= more) {
            if (v[i] < pivot) {
                swap(&v[i++], &v[less++]);
            } else if (v[i] > pivot) {
                swap(&v[i], &v[more]);
                if (more == 0)
                    break;
                more--;
            } else {
                i++;
            }
        }
        if (k < less)
            high = less - 1;
        else if (k > more)
            low = more + 1;
        else
            return pivot;
    }
    return v[k];
}

void stats_quantiles(double *values, size_t n, const double *q, size_t count, double *ret_quantiles)
{
    size_t begin = 0; /* no value before it is larger than one behind it */
    for (size_t i = 0; i < count; i++) {
        if (n == 0) {
            ret_quantiles[i] = NAN;
            continue;
        }
        double position = q[i] * (double)(n - 1);
        size_t k = (size_t)position;
        double low = select_kth(values + begin, n - begin, k - begin);
        double part = position - (double)k;
        begin = k;
        ret_quantiles[i] = low;
        if (part <= 0 || k + 1 >= n)
            continue;
        double next = values[k + 1];
        for (size_t m = k + 2; m < n; m++)
            if (values[m] < next)
                next = values[m];
        ret_quantiles[i] = low + part * (next - low);
    }
}

double stats_quantile(double *values, size_t n, double q)
{
    double quantile;
    stats_quantiles(values, n, &q, 1, &quantile);
    return quantile;
}

int stats_theil_sen(const double *x, const double *y, size_t n, struct stats_slope *ret_slope)
{
    if (n < 3)
        return -EINVAL;
    const size_t most_points = 300;
    size_t stride = n > most_points ? (n + most_points - 1) / most_points : 1;
    size_t points = (n + stride - 1) / stride;
    double *slopes = mem_alloc_array(points * (points - 1) / 2 + 1, sizeof *slopes);
    if (!slopes)
        return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < n; i += stride)
        for (size_t j = i + stride; j < n; j += stride)
            if (x[j] != x[i])
                slopes[count++] = (y[j] - y[i]) / (x[j] - x[i]);
    int result = -EINVAL;
    if (count > 0) {
        /* Sen's interval: the ranks of the slopes at +-1.96 standard errors of Kendall's S. */
        double p = (double)points;
        double spread = 1.96 * sqrt(p * (p - 1) * (2 * p + 5) / 18.0) / (double)count / 2.0;
        double low = 0.5 - spread, high = 0.5 + spread;
        ret_slope->slope = stats_quantile(slopes, count, 0.5);
        ret_slope->low = stats_quantile(slopes, count, low < 0 ? 0 : low);
        ret_slope->high = stats_quantile(slopes, count, high > 1 ? 1 : high);
        result = 0;
    }
    mem_free(slopes);
    return result;
}

uint64_t stats_random(uint64_t seed, uint64_t counter)
{
    /* splitmix64's finaliser over seed and counter: passes the usual tests for this use, and needs
     * no state. */
    uint64_t z = seed * 0x9e3779b97f4a7c15ull + counter * 0xd1b54a32d192ed03ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
