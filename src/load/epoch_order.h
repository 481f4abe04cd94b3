/* epoch_order.h: the index of every position of an epoch, and which positions a rank has.
 *
 * Two pure functions with random access, so that any thread can make any part of any batch, and a
 * state is a single number:
 *
 *     epoch_order   position in the epoch's sequence    ->  index of the sample
 *     share         (rank, place in the rank's epoch)   ->  position in the sequence
 *
 * A step takes world_size x batch_size positions, in order; rank r has the r-th batch_size of them:
 *
 *     positions   | r0 r0 r0 | r1 r1 r1 | r0 r0 r0 | r1 r1 r1 | r0 r0 | r1 |
 *                 |------- step 0 ------|------- step 1 ------|-- the tail -|
 *
 * The tail is split evenly, so all ranks have the same number of batches unless fewer than
 * world_size samples are left. What remains after any step is a range of positions, whatever the
 * world and the batch size: a state works with another number of ranks.
 */
#ifndef LEAT_LOAD_EPOCH_ORDER_H
#define LEAT_LOAD_EPOCH_ORDER_H

#include "leat/loader.h"
#include "load/permutation.h"

#define ORDER_MAX_MIX 1024

struct epoch_order {
    enum leat_order order;
    uint64_t key; /* of seed and epoch */
    int64_t count;
    int64_t window;              /* WINDOW */
    int64_t block, mix;          /* QUASI */
    int64_t tail_at;             /* QUASI: position of the short block at the end of the data */
    struct permutation sequence; /* FULL: of all samples; QUASI: of the full blocks */
};

/* All numbers are checked by the caller: window, block >= 1; 1 <= mix <= ORDER_MAX_MIX. */
void epoch_order_init(struct epoch_order *s, enum leat_order order, int64_t count, uint64_t seed,
                      uint64_t epoch, int64_t block, int64_t mix, int64_t window);

/* The indices of `count` positions from `first` on. Not for LEAT_ORDER_GIVEN. */
void epoch_order_fill(const struct epoch_order *s, int64_t first, size_t count,
                      int64_t *ret_indices);

struct share {
    int64_t first; /* position at which this share begins: that of a state, or 0 */
    int64_t batch_size, world_size, rank;
    int64_t steps;   /* whole ones */
    int64_t samples; /* of the rank, tail included */
    int64_t tail_at; /* position of the rank's part of the tail */
    int64_t end;     /* positions in all */
};

void share_init(struct share *s, int64_t count, int64_t first, int64_t batch_size, int64_t rank,
                int64_t world_size, int drop_last);

int64_t share_batches(const struct share *s);

/* Samples in the rank's batch `number`. */
int64_t share_batch_samples(const struct share *s, int64_t number);

/* The position of the rank's sample `place` (0 to samples - 1). Consecutive places of a batch have
 * consecutive positions. */
int64_t share_position(const struct share *s, int64_t place);

/* Positions that all ranks have delivered when each has delivered `batches`. */
int64_t share_delivered(const struct share *s, int64_t batches);

#endif
