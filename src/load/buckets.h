/* buckets.h: batches of samples of similar length, planned for one epoch.
 *
 * Padding is wasted when the samples of a batch differ in length. So the order of the epoch, the
 * same permutation that loaders use, is cut into windows, and each window is sorted:
 *
 *     order      | 7 2 9 4 1 8 | 3 6 5 0 … |      lengths, in windows of some thousand samples
 *     sorted     | 9 8|7 4|2 1 | 6 5|3 0 …        longest first, cut into batches
 *     sequence   2 1 | 6 5 | 9 8 | 3 0 | 7 4      the batches, in an order drawn over all of them
 *
 * A batch has batch_size samples, or as many as max_tokens allows: a padded batch takes its longest
 * sample, rounded up to `multiple`, times its number of samples. The plan is a function of
 * (lengths, options, epoch): all ranks and restarts have the same sequence.
 *
 * Of each step of world_size batches, rank r has the r-th. The last batches, which do not give each
 * rank one, are the tail. They are split until there is one for each rank, so all ranks have the
 * same number of batches and every sample comes once; only if the tail has fewer samples than
 * ranks, the last ranks have one batch less. With drop_last the tail is left out. The sequence does
 * not depend on ranks, so a state is the number of batches that all ranks have had together, and
 * any number of ranks may continue from it.
 *
 * A plan takes 8 bytes per sample and 8 per batch.
 */
#ifndef LEAT_LOAD_BUCKETS_H
#define LEAT_LOAD_BUCKETS_H

#include "base/err.h"
#include "load/permutation.h"

#include <stdint.h>

#define BUCKETS_WINDOW        8192 /* default window; at least 32 batches */
#define BUCKETS_WINDOW_BATCH  32
#define BUCKETS_MOST_LENGTH   (INT64_C(1) << 40)
#define BUCKETS_MOST_MULTIPLE (INT64_C(1) << 32)

struct buckets_options {
    int64_t batch_size; /* largest number of samples of a batch; 0: set by max_tokens */
    int64_t max_tokens; /* largest number of tokens of a padded batch; 0: set by batch_size */
    int64_t window; /* samples sorted together; 0: see above. Rounded up to a multiple of batch_size
                       without max_tokens */
    int64_t multiple; /* lengths are padded to a multiple of it; 0: 1 */
    int shuffle;      /* else in the order of the data, window by window */
    int drop_last;    /* without max_tokens: leave out the incomplete batch */
    int allow_long;   /* a sample longer than max_tokens is a batch of its own; else an error */
    uint64_t seed;
};

struct buckets {
    int64_t *indices; /* owned: samples, batch by batch as they were cut */
    int64_t *starts;  /* owned: of each batch in `indices`, and the end */
    int64_t batches;
    int64_t samples; /* in all batches */
    int64_t largest; /* samples of the largest batch */
    int shuffle;
    struct permutation sequence; /* position -> number of the batch */
};

/* The batches of one rank, from a state on. */
struct buckets_rank {
    int64_t rank, world_size;
    int64_t done; /* batches of the sequence that all ranks have had before */
};

/* Plans an epoch. `lengths` has `count` entries and is not kept. A sample longer than max_tokens is
 * named in the error. On failure nothing is left to free. */
int buckets_init(struct buckets *b, const int64_t *lengths, int64_t count,
                 const struct buckets_options *options, uint64_t epoch, struct leat_err *err);
void buckets_done(struct buckets *b); /* also of zeros */

/* Batches of the rank from `done` on. */
int64_t buckets_steps(const struct buckets *b, const struct buckets_rank *rank, int drop_last);

/* The samples of the rank's batch `step` (0 to buckets_steps() - 1); they live as long as the plan.
 * Returns their number, or -ENOMEM. */
int64_t buckets_part(const struct buckets *b, const struct buckets_rank *rank, int64_t step,
                     const int64_t **ret_indices);

/* `done` after that many steps of all ranks. */
int64_t buckets_done_after(const struct buckets *b, const struct buckets_rank *rank, int64_t steps);

#endif
