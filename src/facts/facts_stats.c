/* facts_stats.c: mean, median, p90, p99 and share of each phase, once a rank.
 *
 * Unfolded steps are exact: three selections in one scratch array. Of folded steps only means and a
 * histogram are left: means and shares stay exact (sums), quantiles come from the rows that are
 * still whole together with the bins, and are good to a bin's 2 %.
 */
#include "facts_load.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double *column(const struct rank_facts *r, int phase)
{
    return phase == PHASES ? r->wall_ms : r->phase_ms[phase];
}

/* Selection by counting. Times spread over a few powers of two, so the top bits of a double sort
 * them into bins of equal relative width; only the bins that hold the wanted places are looked
 * into. On 100 000 steps this takes a fifth of the time of three quick-selects, and a report of 8
 * ranks makes 64 of them. What is 2^20 times smaller than the largest value shares the lowest bin.
 */
#define BINS    4096
#define OCTAVES 20

struct binning {
    uint64_t base; /* bits of the smallest value that has a bin of its own */
    unsigned shift;
    uint32_t count[BINS];
    unsigned char wanted[BINS];
};

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits); /* ordered as the values are, for those not below zero */
    return bits;
}

static size_t bin_of(const struct binning *b, double value)
{
    uint64_t bits = bits_of(value);
    return value > 0 && bits > b->base ? (size_t)((bits - b->base) >> b->shift) : 0;
}

static void binning_span(struct binning *b, double most)
{
    memset(b, 0, sizeof *b);
    b->base = bits_of(ldexp(most, -OCTAVES));
    while ((bits_of(most) - b->base) >> b->shift >= BINS)
        b->shift++;
}

static void binning_fill(struct binning *b, const double *values, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (values[i] > most)
            most = values[i];
    binning_span(b, most);
    for (size_t i = 0; i < n; i++)
        b->count[bin_of(b, values[i])]++;
}

static size_t bin_with(const struct binning *b, size_t k, size_t *ret_before)
{
    size_t before = 0, bin = 0;
    while (before + b->count[bin] <= k)
        before += b->count[bin++];
    *ret_before = before;
    return bin;
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The k-th smallest of all, out of the sorted values of the wanted bins. */
static double kth(const struct binning *b, const double *few, size_t k)
{
    size_t before, few_before = 0, bin = bin_with(b, k, &before);
    for (size_t i = 0; i < bin; i++)
        few_before += b->wanted[i] ? b->count[i] : 0;
    return few[few_before + (k - before)];
}

/* Linear interpolation between neighbours, as stats_quantile does. */
static void exact_quantiles(const double *values, size_t n, double *scratch, struct step_stats *s)
{
    static const double wanted[] = {0.5, 0.9, 0.99};
    double *const places[] = {&s->median, &s->p90, &s->p99};
    struct binning b;
    size_t few = 0, before;
    binning_fill(&b, values, n);
    for (int i = 0; i < 3; i++) {
        size_t k = (size_t)(wanted[i] * (double)(n - 1));
        b.wanted[bin_with(&b, k, &before)] = 1;
        b.wanted[bin_with(&b, k + 1 < n ? k + 1 : k, &before)] = 1;
    }
    for (size_t i = 0; i < n; i++)
        if (b.wanted[bin_of(&b, values[i])])
            scratch[few++] = values[i];
    qsort(scratch, few, sizeof *scratch, by_number);
    for (int i = 0; i < 3; i++) {
        double place = wanted[i] * (double)(n - 1);
        size_t k = (size_t)place;
        double low = kth(&b, scratch, k);
        double high = k + 1 < n ? kth(&b, scratch, k + 1) : low;
        *places[i] = low + (place - (double)k) * (high - low);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct fold_bin *)a)->ms, y = ((const struct fold_bin *)b)->ms;
    return (x > y) - (x < y);
}

/* Whole rows and the histogram's bins, one after the other, as points with a weight. Without a
 * histogram a folded entry stands for its steps by their mean. Returns 0 behind the last. */
static int next_point(const struct rank_facts *r, int phase, size_t *at, struct fold_bin *ret)
{
    for (; *at < r->count; ++*at)
        if (r->weight[*at] == 1 || r->bin_count[phase] == 0) {
            *ret = (struct fold_bin){column(r, phase)[*at], r->weight[*at]};
            ++*at;
            return 1;
        }
    if (*at - r->count >= r->bin_count[phase])
        return 0;
    *ret = r->bins[phase][(*at)++ - r->count];
    return 1;
}

/* As exact_quantiles, with weights: only the points of the bins that matter are sorted. */
static int folded_quantiles(const struct rank_facts *r, int phase, struct step_stats *s)
{
    static const double wanted[] = {0.5, 0.9, 0.99};
    double *const places[] = {&s->median, &s->p90, &s->p99};
    double total = 0, most = 0, before[3], weights[BINS] = {0};
    size_t n = 0, bin[3];
    struct binning b;
    struct fold_bin point;
    for (size_t at = 0; next_point(r, phase, &at, &point); n++)
        most = point.ms > most ? point.ms : most;
    binning_span(&b, most);
    for (size_t at = 0; next_point(r, phase, &at, &point); total += point.n)
        weights[bin_of(&b, point.ms)] += point.n;
    struct fold_bin *few = mem_alloc_array(n + 1, sizeof *few);
    if (!few)
        return -ENOMEM;
    for (int i = 0; i < 3; i++) {
        before[i] = 0;
        for (bin[i] = 0; bin[i] + 1 < BINS && before[i] + weights[bin[i]] < wanted[i] * total;)
            before[i] += weights[bin[i]++];
        b.wanted[bin[i]] = 1;
    }
    n = 0;
    for (size_t at = 0; next_point(r, phase, &at, &point);)
        if (b.wanted[bin_of(&b, point.ms)])
            few[n++] = point;
    qsort(few, n, sizeof *few, by_value);
    for (int i = 0; i < 3; i++) {
        *places[i] = NAN;
        for (size_t j = 0; j < n; j++) {
            if (bin_of(&b, few[j].ms) != bin[i])
                continue;
            *places[i] = few[j].ms;
            if ((before[i] += few[j].n) >= wanted[i] * total)
                break;
        }
    }
    mem_free(few);
    return 0;
}

static int phase_stats(const struct rank_facts *r, int phase, double *scratch, struct step_stats *s)
{
    *s = (struct step_stats){NAN, NAN, NAN, NAN, NAN};
    const double *values = column(r, phase);
    if (!values || r->kept <= 0)
        return 0;
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->weight[i] * values[i];
    s->mean = sum / (double)r->kept;
    s->share = r->kept_ms > 0 ? sum / r->kept_ms : NAN;
    if (r->folded)
        return folded_quantiles(r, phase, s);
    exact_quantiles(values, r->count, scratch, s);
    return 0;
}

int facts_compute_stats(struct rank_facts *r)
{
    struct step_stats *stats = mem_alloc_array(PHASES + 1, sizeof *stats);
    double *scratch = mem_alloc_array(r->count + 1, sizeof *scratch);
    int result = stats && scratch ? 0 : -ENOMEM;
    for (int p = 0; result == 0 && p <= PHASES; p++)
        result = phase_stats(r, p, scratch, &stats[p]);
    mem_free(scratch);
    if (result < 0) {
        mem_free(stats);
        return result;
    }
    mem_free(r->stats);
    r->stats = stats;
    return 0;
}

void facts_stats(const struct facts *facts, int rank, int phase, struct step_stats *ret_stats)
{
    const struct rank_facts *r = NULL;
    if (rank < 0 && facts->typical >= 0 && (size_t)facts->typical < facts->rank_count)
        r = &facts->ranks[facts->typical];
    for (size_t i = 0; rank >= 0 && i < facts->rank_count; i++)
        if (facts->ranks[i].rank == rank)
            r = &facts->ranks[i];
    *ret_stats = (struct step_stats){NAN, NAN, NAN, NAN, NAN};
    if (!r || phase < 0 || phase > PHASES)
        return;
    if (r->stats) {
        *ret_stats = r->stats[phase];
        return;
    }
    double *scratch = mem_alloc_array(r->count + 1, sizeof *scratch);
    if (scratch && phase_stats(r, phase, scratch, ret_stats) < 0)
        *ret_stats = (struct step_stats){NAN, NAN, NAN, NAN, NAN};
    mem_free(scratch);
}
