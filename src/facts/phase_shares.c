/* phase_shares.c: see phase_shares.h. */
#include "facts/phase_shares.h"

#include "base/mem.h"
#include "base/stats.h"

#include <stdlib.h>
#include <string.h>

const struct rank_facts *typical_rank(const struct facts *facts)
{
    if (facts->rank_count == 0 || facts->typical < 0)
        return NULL;
    return &facts->ranks[facts->typical];
}

double step_mean(const struct rank_facts *r)
{
    return r->kept_ms / (double)r->kept;
}

static double phase_sum(const struct rank_facts *r, int phase)
{
    double sum = 0;
    for (size_t i = 0; r->phase_ms[phase] && i < r->count; i++)
        sum += r->weight[i] * r->phase_ms[phase][i];
    return sum;
}

double phase_mean(const struct rank_facts *r, int phase)
{
    return r->kept > 0 ? phase_sum(r, phase) / (double)r->kept : 0;
}

double phase_share(const struct rank_facts *r, int phase)
{
    return r->kept_ms > 0 ? phase_sum(r, phase) / r->kept_ms : 0;
}

struct entry {
    double wall_ms;
    size_t index;
};

/* Slowest first; equal ones in the order of the run, so that the result is deterministic. */
static int slower_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->wall_ms != y->wall_ms)
        return x->wall_ms < y->wall_ms ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

int slowest_find(const struct rank_facts *r, struct slowest *ret)
{
    struct entry *entries = mem_alloc_array(r->count + 1, sizeof *entries);
    double *walls = mem_alloc_array(r->count + 1, sizeof *walls);
    unsigned char *slow = mem_alloc(r->count + 1);
    if (!entries || !walls || !slow) {
        mem_free(entries);
        mem_free(walls);
        mem_free(slow);
        return -ENOMEM;
    }
    /* Each entry stands for at least one step, so the slowest `wanted` steps are among as many
     * of the slowest entries. Twice as many are sorted, because large folded entries are skipped
     * below. */
    int64_t wanted = r->kept / 100 > 1 ? r->kept / 100 : 1, taken = 0;
    double held = 0;
    size_t n = 0;
    memcpy(walls, r->wall_ms, r->count * sizeof *walls);
    double sorted = 2.0 * (double)wanted / (double)(r->count + 1);
    double cut = sorted < 0.5 ? stats_quantile(walls, r->count, 1 - sorted) : 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->wall_ms[i] >= cut)
            entries[n++] = (struct entry){r->wall_ms[i], i};
    qsort(entries, n, sizeof *entries, slower_first);
    for (size_t i = 0; i < n && taken < wanted; i++) {
        size_t at = entries[i].index;
        if (taken + (int64_t)r->weight[at] > wanted && taken > 0)
            continue; /* this entry has more steps than are still needed */
        slow[at] = 1;
        taken += (int64_t)r->weight[at];
        held += r->weight[at] * r->wall_ms[at];
    }
    mem_free(entries);
    mem_free(walls);
    *ret = (struct slowest){.slow = slow,
                            .steps = taken,
                            .share = r->kept_ms > 0 ? held / r->kept_ms : 0,
                            .fair_share = r->kept > 0 ? (double)taken / (double)r->kept : 1};
    return 0;
}

void kept_interval(const struct rank_facts *r, double *ret_from_ms, double *ret_to_ms)
{
    *ret_from_ms = *ret_to_ms = 0;
    if (!r || r->count == 0)
        return;
    /* The end of a folded entry is that of its last step. */
    *ret_from_ms = r->end_ms[0] - r->weight[0] * r->wall_ms[0];
    *ret_to_ms = r->end_ms[r->count - 1];
}
