/* arena.h: the memory of one batch's variable fields, whose size is known only when they are read.
 *
 *     chunks   | used |used|  |──►| used |      |      a new chunk is as large as those before it
 *                             ▲ current                together
 *
 * Values of variable length are written here, and the padded or joined rows made of them. Any
 * thread allocates by one atomic addition; only a new chunk needs the lock. Between two batches the
 * arena is reset, and several chunks become one of the size that was needed, so after some batches
 * nothing is allocated any more. All of it counts against the loader's budget.
 */
#ifndef LEAT_LOAD_ARENA_H
#define LEAT_LOAD_ARENA_H

#include "load/block.h"

#include <pthread.h>

struct arena_chunk {
    struct arena_chunk *next; /* under the lock */
    struct block block;
    uint64_t bytes; /* from block.start on */
    _Atomic uint64_t used;
};

struct arena {
    struct budget *budget; /* may be NULL */
    pthread_mutex_t lock;
    struct arena_chunk *chunks;          /* under the lock */
    struct arena_chunk *_Atomic current; /* written under the lock */
    _Atomic uint64_t cost_bytes;         /* of all chunks; written under the lock */
    atomic_int refused;                  /* arena_alloc() has failed since the last reset */
};

void arena_init(struct arena *arena, struct budget *budget);
void arena_done(struct arena *arena); /* frees all memory; the arena may be used again */

/* 64-byte aligned; NULL when the budget or the machine has no more. Any thread. */
void *arena_alloc(struct arena *arena, uint64_t bytes);

/* To be called while no other thread uses the arena. */
void arena_reset(struct arena *arena);
void arena_after_fork(struct arena *arena); /* another thread may have held the lock */

#endif
