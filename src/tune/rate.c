/* rate.c: see rate.h. */
#include "tune/rate.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>

enum {
    MOST_BLOCKS = 12,    /* shorter blocks would depend on their neighbours */
    MOST_TIMES = 1 << 18 /* 2 MB; the rate of such a fast loader is known long before */
};

/* A rate is known when the interval is within this of it. The choice between settings is made at
 * 2 % (TUNE_SAME) and finalists are measured again. */
#define KNOWN_RATIO 0.03
/* A shorter window measures the scheduler's time slices (some ms) rather than the loader. */
#define LEAST_WINDOW_S 0.25
/* Settings that are at best 20 % slower than the best so far need no precise rate. */
#define TOO_SLOW_RATIO      0.8
#define TOO_SLOW_WINDOW_S   0.2
#define TOO_SLOW_LEAST      3
#define LEAST_BLOCKS        4
#define LEAST_BLOCKS_AT_END 2

/* Student's t, 97.5 %, by degrees of freedom. */
static const double student[MOST_BLOCKS] = {0,     12.71, 4.303, 3.182, 2.776, 2.571,
                                            2.447, 2.365, 2.306, 2.262, 2.228, 2.201};

void rate_init(struct rate *rate, int workers)
{
    *rate = (struct rate){.group = workers > 1 ? workers : 1};
}

void rate_done(struct rate *rate)
{
    mem_free(rate->at_s);
    *rate = (struct rate){.group = 1};
}

int rate_add(struct rate *rate, double at_s)
{
    if (!isfinite(at_s) || (rate->count && at_s < rate->at_s[rate->count - 1]))
        return -EINVAL;
    if (rate->count >= MOST_TIMES)
        return 0;
    int result = mem_reserve(&rate->at_s, &rate->capacity, rate->count + 1, sizeof *rate->at_s);
    if (result == 0)
        rate->at_s[rate->count++] = at_s;
    return result;
}

static double half_interval(const double *lengths, size_t n)
{
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += lengths[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (lengths[i] - mean) * (lengths[i] - mean);
    if (n < 2 || mean <= 0)
        return INFINITY;
    return student[n - 1] * sqrt(square / (double)(n - 1) / (double)n) / mean;
}

void rate_estimate(const struct rate *rate, struct rate_estimate *ret_estimate)
{
    struct rate_estimate e = {.batches_per_s = NAN,
                              .half_ratio = INFINITY,
                              .first_s = rate->count ? rate->at_s[0] : NAN,
                              .round_s = NAN};
    size_t group = (size_t)rate->group;
    if (rate->count >= group)
        e.round_s = rate->at_s[group - 1];
    size_t rounds = rate->count / group;
    if (rounds >= 2) {
        const double *from = rate->at_s + group - 1;
        rounds -= 1;
        e.blocks = rounds < MOST_BLOCKS ? rounds : MOST_BLOCKS;
        size_t step = rounds / e.blocks * group;
        double lengths[MOST_BLOCKS];
        for (size_t i = 0; i < e.blocks; i++)
            lengths[i] = from[(i + 1) * step] - from[i * step];
        e.half_ratio = half_interval(lengths, e.blocks);
        /* The rate is over all whole rounds, also those that fill no block. */
        e.window_s = from[rounds * group] - from[0];
        e.batches_per_s = e.window_s > 0 ? (double)(rounds * group) / e.window_s : NAN;
    }
    *ret_estimate = e;
}

enum rate_advice rate_judge(const struct rate_estimate *e, double best, double most_s)
{
    if (!(e->batches_per_s > 0))
        return RATE_GO_ON;
    if (e->window_s >= TOO_SLOW_WINDOW_S && e->blocks >= TOO_SLOW_LEAST &&
        e->batches_per_s * (1 + e->half_ratio) < TOO_SLOW_RATIO * best)
        return RATE_TOO_SLOW;
    if (e->window_s >= LEAST_WINDOW_S && e->blocks >= LEAST_BLOCKS && e->half_ratio <= KNOWN_RATIO)
        return RATE_ENOUGH;
    if (e->window_s >= most_s && e->blocks >= LEAST_BLOCKS_AT_END)
        return RATE_ENOUGH;
    return RATE_GO_ON;
}
