/* facts_stats.c: mean, median, p90, p99 and share of each phase, once a rank.
 *
 * Unfolded steps are exact: three selections in one scratch array. Of folded steps only means and a
 * histogram are left: means and shares stay exact (sums), quantiles come from the rows that are
 * still whole together with the bins, and are good to a bin's 2 %.
 */
#include "diagnose/diagnose.h"
#include "diagnose/facts_load.h"

#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double *column(const struct rank_facts *r, int phase)
{
    return phase == PHASES ? r->wall_ms : r->phase_ms[phase];
}

/* Selecting the median leaves the larger values behind it, so p90 and p99 each search only what
 * lies beyond; the interpolation is that of stats_quantile over the whole array. */
static void exact_quantiles(const double *values, size_t n, double *scratch, struct step_stats *s)
{
    memcpy(scratch, values, n * sizeof *values);
    s->median = stats_quantile(scratch, n, 0.5);
    size_t done = n > 8 ? n / 2 : 0; /* everything before is <= everything from here on */
    double *const places[] = {&s->p90, &s->p99};
    const double wanted[] = {0.9, 0.99};
    for (int i = 0; i < 2; i++) {
        double place = wanted[i] * (double)(n - 1);
        if (n - done < 2 || place < (double)done)
            *places[i] = stats_quantile(scratch, n, wanted[i]);
        else
            *places[i] = stats_quantile(scratch + done, n - done,
                                        (place - (double)done) / (double)(n - done - 1));
    }
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct fold_bin *)a)->ms, y = ((const struct fold_bin *)b)->ms;
    return (x > y) - (x < y);
}

static double weighted_quantile(const struct fold_bin *points, size_t n, double total, double q)
{
    double seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += points[i].n;
        if (seen >= q * total)
            return points[i].ms;
    }
    return n ? points[n - 1].ms : NAN;
}

static int folded_quantiles(const struct rank_facts *r, int phase, struct step_stats *s)
{
    const double *values = column(r, phase);
    size_t n = r->bin_count[phase];
    struct fold_bin *points = mem_alloc_array(n + r->count + 1, sizeof *points);
    if (!points)
        return -ENOMEM;
    if (n)
        memcpy(points, r->bins[phase], n * sizeof *points);
    for (size_t i = 0; i < r->count; i++)
        if (r->weight[i] == 1 || r->bin_count[phase] == 0)
            points[n++] = (struct fold_bin){values[i], r->weight[i]};
    qsort(points, n, sizeof *points, by_value);
    double total = 0;
    for (size_t i = 0; i < n; i++)
        total += points[i].n;
    s->median = weighted_quantile(points, n, total, 0.5);
    s->p90 = weighted_quantile(points, n, total, 0.9);
    s->p99 = weighted_quantile(points, n, total, 0.99);
    mem_free(points);
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
