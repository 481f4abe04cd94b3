/* facts_stats.c: mean, median, p90, p99 and share of each phase, for each rank.
 *
 * Without folded steps all are exact. Of folded steps run.db keeps sums and a histogram: means and
 * shares stay exact, quantiles are those of the histogram with the other steps added.
 */
#include "facts_load.h"

#include "base/duration_histogram.h"
#include "base/mem.h"
#include "base/stats.h"

#include <math.h>
#include <string.h>

static const double *column(const struct rank_facts *r, int phase)
{
    return phase == PHASES ? r->wall_ms : r->phase_ms[phase];
}

static const double wanted[] = {0.5, 0.9, 0.99};

static void exact_quantiles(const double *values, size_t n, double *scratch,
                            double ret_quantiles[3])
{
    memcpy(scratch, values, n * sizeof *scratch);
    stats_quantiles(scratch, n, wanted, 3, ret_quantiles);
}

/* Without a histogram an interval of folded steps counts by their mean. */
static void folded_quantiles(const struct rank_facts *r, int phase, double ret_quantiles[3])
{
    uint64_t counts[DURATION_BUCKETS] = {0};
    if (r->folded_bins[phase])
        memcpy(counts, r->folded_bins[phase], sizeof counts);
    for (size_t i = 0; i < r->count; i++)
        if (r->weight[i] == 1 || !r->folded_bins[phase])
            counts[duration_bucket_of((uint64_t)(column(r, phase)[i] * 1e6))] +=
                (uint64_t)r->weight[i];
    for (int i = 0; i < 3; i++)
        ret_quantiles[i] = duration_histogram_quantile_ns(counts, wanted[i]) / 1e6;
}

static void phase_stats(const struct rank_facts *r, int phase, double *scratch,
                        struct step_stats *s)
{
    *s = (struct step_stats){NAN, NAN, NAN, NAN, NAN};
    const double *values = column(r, phase);
    if (!values || r->kept <= 0)
        return;
    double sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->weight[i] * values[i];
    s->mean = sum / (double)r->kept;
    s->share = r->kept_ms > 0 ? sum / r->kept_ms : NAN;
    double quantiles[3];
    if (r->folded)
        folded_quantiles(r, phase, quantiles);
    else
        exact_quantiles(values, r->count, scratch, quantiles);
    s->median = quantiles[0];
    s->p90 = quantiles[1];
    s->p99 = quantiles[2];
}

int facts_compute_stats(struct rank_facts *r)
{
    struct step_stats *stats = mem_alloc_array(PHASES + 1, sizeof *stats);
    double *scratch = mem_alloc_array(r->count + 1, sizeof *scratch);
    int result = stats && scratch ? 0 : -ENOMEM;
    for (int p = 0; result == 0 && p <= PHASES; p++)
        phase_stats(r, p, scratch, &stats[p]);
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
    if (scratch)
        phase_stats(r, phase, scratch, ret_stats);
    mem_free(scratch);
}
