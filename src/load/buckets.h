/* buckets.h: batches of samples of like length, planned for one epoch.
 *
 * Padding is what a batch wastes when its samples differ in length. So the order of the epoch, the
 * same permutation that the engine's loaders use, is cut into windows, and each window is sorted:
 *
 *     order      | 7 2 9 4 1 8 | 3 6 5 0 … |      lengths, in windows of some thousand samples
 *     sorted     | 9 8|7 4|2 1 | 6 5|3 0 …        longest first, cut into batches
 *     sequence   2 1 | 6 5 | 9 8 | 3 0 | 7 4      the batches, in an order drawn over all of them
 *
 * A batch has batch_size samples, or as many as max_tokens allows: the longest, rounded up to
 * `multiple`, times the samples is what it takes once it is padded. Samples of one length are
 * neighbours only by chance, as the window was shuffled before. All is a function of (lengths,
 * options, epoch): ranks and restarts find the same sequence.
 *
 * Ranks take turns: of each step of world_size batches, rank r has the r-th. What is left at the
 * end and does not give each rank one is the tail. Its batches are split until there is one for
 * each rank, so all have the same number of batches and every sample comes once; only where the
 * tail has fewer samples than there are ranks, the last ranks have one batch less. A part of a
 * batch never takes more than the batch. With drop_last the tail is left out. Since the sequence
 * itself knows nothing of ranks, a state is the number of batches that all ranks have had together,
 * and may be taken up by any number of ranks.
 *
 * A plan takes 8 bytes a sample and 8 a batch while it lives.
 */
#ifndef LEAT_LOAD_BUCKETS_H
#define LEAT_LOAD_BUCKETS_H

#include "base/err.h"
#include "load/permutation.h"

#include <stdint.h>

#define BUCKETS_WINDOW        8192 /* what a window of 0 means, and at least 32 batches of it */
#define BUCKETS_WINDOW_BATCH  32
#define BUCKETS_MOST_LENGTH   (INT64_C(1) << 40)
#define BUCKETS_MOST_MULTIPLE (INT64_C(1) << 32)

struct buckets_options {
    int64_t batch_size; /* most samples of a batch; 0: max_tokens alone decides */
    int64_t max_tokens; /* most tokens of a padded batch; 0: batch_size alone decides */
    int64_t window;     /* samples sorted together; 0: see above. Without max_tokens it is made a
                           multiple of batch_size */
    int64_t multiple;   /* what padding rounds up to; 0: 1 */
    int shuffle;        /* else the order is that of the data, and batches come window by window */
    int drop_last;      /* without max_tokens: leave out the batch that is not full */
    int allow_long;     /* a sample beyond max_tokens is a batch of its own; else it is refused */
    uint64_t seed;
};

struct buckets {
    int64_t *indices; /* owned: samples, batch by batch as they were cut */
    int64_t *starts;  /* owned: of each batch in `indices`, and the end */
    int64_t batches;
    int64_t samples; /* in batches: all but what drop_last left out */
    int64_t largest; /* samples of the batch that has most */
    int shuffle;
    struct permutation sequence; /* number of a batch -> which of those that were cut */
};

/* Whose batches, from where on. */
struct buckets_rank {
    int64_t rank, world_size;
    int64_t done; /* batches of the sequence that were had before, by all ranks together */
};

/* Plans an epoch. `lengths` are those of the `count` samples and are not kept. A sample that is too
 * long for max_tokens is named. On failure nothing is left to free. */
int buckets_init(struct buckets *b, const int64_t *lengths, int64_t count,
                 const struct buckets_options *options, uint64_t epoch, struct leat_err *err);
void buckets_done(struct buckets *b); /* also of zeros */

/* How many batches the rank has from `done` on. */
int64_t buckets_steps(const struct buckets *b, const struct buckets_rank *rank, int drop_last);

/* The samples of the rank's batch `step` (0 to buckets_steps() - 1); they live with the plan.
 * Returns how many they are, or -ENOMEM. */
int64_t buckets_part(const struct buckets *b, const struct buckets_rank *rank, int64_t step,
                     const int64_t **ret_indices);

/* What `done` is after that many steps of all ranks. */
int64_t buckets_done_after(const struct buckets *b, const struct buckets_rank *rank, int64_t steps);

#endif
