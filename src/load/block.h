/* block.h: memory for batches, and the budget it is taken from.
 *
 * Blocks begin at a multiple of 64 bytes. Large ones are mapped, aligned to huge pages, and ask for
 * them: a batch of a megabyte and more is then filled without a fault for each 4 KiB, which is half
 * of what a copy from warm memory costs. They are filled again and again; the pages stay.
 */
#ifndef LEAT_LOAD_BLOCK_H
#define LEAT_LOAD_BLOCK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BLOCK_ALIGN_BYTES 64u
#define BLOCK_MOST_BYTES  ((uint64_t)INT64_MAX / 4)

struct block {
    uint8_t *start;
    void *memory; /* as the system gave it; NULL: there is none */
    size_t memory_bytes;
    int mapped;
    pid_t not_inherited_from; /* the only process that has it; 0: children have it too */
};

int block_get(struct block *block, uint64_t bytes); /* 0 or -ENOMEM */
int block_map(struct block *block, uint64_t bytes); /* the same, in pages of its own */
void block_drop(struct block *block);               /* also of zeros */
/* Children of this process do not get the memory of a mapped block. A child that drops the block
 * unmaps nothing: the addresses may hold something else there. */
void block_not_inherited(struct block *block);

/* What a block of `bytes` takes of the budget. */
uint64_t block_cost_bytes(uint64_t bytes);

static inline uint64_t block_round_up(uint64_t bytes)
{
    return (bytes + BLOCK_ALIGN_BYTES - 1) / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES;
}

/* What all slots of a loader, and their arenas, may take together. */
struct budget {
    _Atomic uint64_t used_bytes;
    uint64_t most_bytes; /* set once */
};

/* 1 when it was granted. A NULL budget grants everything. */
int budget_take(struct budget *budget, uint64_t bytes);
void budget_give_back(struct budget *budget, uint64_t bytes);

#endif
