/* rate.h: the rate of a loader, from the times at which its batches arrived, and whether it is
 * known precisely enough.
 *
 * Workers deliver in rounds: w workers deliver w batches almost together, then none until the next
 * are made. So whole rounds are compared:
 *
 *     start ........|||| ........|||| ........|||| ........||||
 *           left out^    └─block─┘    └─block─┘    └─block─┘
 *
 * The first round is left out: it includes the start of the workers. The rest is cut into a few
 * blocks of whole rounds; their spread gives the precision of the mean.
 */
#ifndef LEAT_TUNE_RATE_H
#define LEAT_TUNE_RATE_H

#include <stddef.h>

struct rate {
    double *at_s; /* owned; arrival of each batch, from the start of the row */
    size_t count, capacity;
    int group; /* batches per round */
};

struct rate_estimate {
    double batches_per_s; /* NaN with fewer than two batches after the first round */
    double half_ratio;    /* half of the 95 % interval over the rate; infinity with one block */
    double window_s;      /* length of the measurement, without the first round */
    size_t blocks;
    double first_s, round_s; /* first batch, first round; NaN */
};

enum rate_advice { RATE_GO_ON, RATE_ENOUGH, RATE_TOO_SLOW };

void rate_init(struct rate *rate, int workers);
void rate_done(struct rate *rate);
int rate_add(struct rate *rate,
             double at_s); /* 0; -ENOMEM; -EINVAL for a time before the last one */
void rate_estimate(const struct rate *rate, struct rate_estimate *ret_estimate);
/* `best` is the rate to beat, in batches/s (0: none); `most_s` the time a row may take. */
enum rate_advice rate_judge(const struct rate_estimate *estimate, double best, double most_s);

#endif
