/* arena.c: see arena.h. */
#include "load/arena.h"

#include "base/mem.h"

#define FIRST_CHUNK_BYTES (16u << 10)

void arena_init(struct arena *arena, struct budget *budget)
{
    arena->budget = budget;
    pthread_mutex_init(&arena->lock, NULL);
}

void arena_after_fork(struct arena *arena)
{
    pthread_mutex_init(&arena->lock, NULL);
}

/* A chunk of at least `bytes`, or NULL. */
static struct arena_chunk *new_chunk(struct arena *arena, uint64_t bytes)
{
    uint64_t cost = block_cost_bytes(bytes);
    if (!budget_take(arena->budget, cost))
        return NULL;
    struct arena_chunk *chunk = mem_alloc(sizeof *chunk);
    if (!chunk || block_get(&chunk->block, bytes) < 0) {
        mem_free(chunk);
        budget_give_back(arena->budget, cost);
        return NULL;
    }
    chunk->bytes = bytes;
    atomic_fetch_add_explicit(&arena->cost_bytes, cost, memory_order_relaxed);
    return chunk;
}

static void free_chunks(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        block_drop(&chunk->block);
        mem_free(chunk);
    }
    budget_give_back(arena->budget, atomic_load(&arena->cost_bytes));
    atomic_store(&arena->cost_bytes, 0);
    arena->chunks = NULL;
    atomic_store(&arena->current, NULL);
}

void arena_done(struct arena *arena)
{
    free_chunks(arena);
}

/* Lock held. The chunk after `seen` that holds `bytes`: one from an earlier batch, or a new one. */
static struct arena_chunk *chunk_after(struct arena *arena, struct arena_chunk *seen,
                                       uint64_t bytes)
{
    struct arena_chunk **link = seen ? &seen->next : &arena->chunks;
    uint64_t so_far = atomic_load_explicit(&arena->cost_bytes, memory_order_relaxed);
    for (; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes)
            return *link;
    if (so_far < FIRST_CHUNK_BYTES)
        so_far = FIRST_CHUNK_BYTES;
    struct arena_chunk *chunk = so_far > bytes ? new_chunk(arena, so_far) : NULL;
    if (!chunk) /* the budget may still have enough for the request alone */
        chunk = new_chunk(arena, bytes);
    *link = chunk;
    return chunk;
}

/* Continues in the chunk after `seen`, unless another thread already does. -1: there is no memory.
 */
static int move_on(struct arena *arena, struct arena_chunk *seen, uint64_t bytes)
{
    int failed = 0;
    pthread_mutex_lock(&arena->lock);
    if (atomic_load_explicit(&arena->current, memory_order_relaxed) == seen) {
        struct arena_chunk *chunk = chunk_after(arena, seen, bytes);
        if (chunk)
            atomic_store_explicit(&arena->current, chunk, memory_order_release);
        else
            failed = -1;
    }
    pthread_mutex_unlock(&arena->lock);
    return failed;
}

void *arena_alloc(struct arena *arena, uint64_t bytes)
{
    if (bytes > BLOCK_MOST_BYTES) {
        atomic_store_explicit(&arena->refused, 1, memory_order_relaxed);
        return NULL;
    }
    bytes = block_round_up(bytes ? bytes : 1);
    for (;;) {
        struct arena_chunk *chunk = atomic_load_explicit(&arena->current, memory_order_acquire);
        if (chunk) {
            /* Late threads may count beyond the end: the chunk is full then. */
            uint64_t at = atomic_fetch_add_explicit(&chunk->used, bytes, memory_order_relaxed);
            if (at < chunk->bytes && bytes <= chunk->bytes - at)
                return chunk->block.start + at;
        }
        if (move_on(arena, chunk, bytes) < 0) {
            atomic_store_explicit(&arena->refused, 1, memory_order_relaxed);
            return NULL;
        }
    }
}

void arena_reset(struct arena *arena)
{
    atomic_store_explicit(&arena->refused, 0, memory_order_relaxed);
    if (!arena->chunks)
        return;
    if (arena->chunks->next) {
        uint64_t needed = 0;
        for (struct arena_chunk *chunk = arena->chunks; chunk; chunk = chunk->next) {
            uint64_t used = atomic_load_explicit(&chunk->used, memory_order_relaxed);
            needed += used < chunk->bytes ? used : chunk->bytes;
        }
        free_chunks(arena);
        /* An eighth more, as batches differ. On failure the next batch begins with a small chunk.
         */
        arena->chunks = new_chunk(arena, block_round_up(needed + needed / 8));
    }
    if (arena->chunks)
        atomic_store_explicit(&arena->chunks->used, 0, memory_order_relaxed);
    atomic_store_explicit(&arena->current, arena->chunks, memory_order_release);
}
