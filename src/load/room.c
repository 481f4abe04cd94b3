/* room.c: see room.h. */
#include "load/room.h"

#include "base/mem.h"

#define FIRST_CHUNK_BYTES (16u << 10)

void room_init(struct room *room, struct budget *budget)
{
    room->budget = budget;
    pthread_mutex_init(&room->lock, NULL);
}

void room_after_fork(struct room *room)
{
    pthread_mutex_init(&room->lock, NULL);
}

/* A chunk of at least `bytes`; NULL when it is refused. */
static struct room_chunk *new_chunk(struct room *room, uint64_t bytes)
{
    uint64_t cost = block_cost_bytes(bytes);
    if (!budget_take(room->budget, cost))
        return NULL;
    struct room_chunk *chunk = mem_alloc(sizeof *chunk);
    if (!chunk || block_get(&chunk->block, bytes) < 0) {
        mem_free(chunk);
        budget_give_back(room->budget, cost);
        return NULL;
    }
    chunk->bytes = bytes;
    atomic_fetch_add_explicit(&room->cost_bytes, cost, memory_order_relaxed);
    return chunk;
}

static void free_chunks(struct room *room)
{
    for (struct room_chunk *chunk = room->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        block_drop(&chunk->block);
        mem_free(chunk);
    }
    budget_give_back(room->budget, atomic_load(&room->cost_bytes));
    atomic_store(&room->cost_bytes, 0);
    room->chunks = NULL;
    atomic_store(&room->current, NULL);
}

void room_done(struct room *room)
{
    free_chunks(room);
}

/* Lock held. The chunk after `seen` that holds `bytes`: one from an earlier batch, or a new one. */
static struct room_chunk *chunk_after(struct room *room, struct room_chunk *seen, uint64_t bytes)
{
    struct room_chunk **link = seen ? &seen->next : &room->chunks;
    uint64_t so_far = atomic_load_explicit(&room->cost_bytes, memory_order_relaxed);
    for (; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes)
            return *link;
    if (so_far < FIRST_CHUNK_BYTES)
        so_far = FIRST_CHUNK_BYTES;
    struct room_chunk *chunk = so_far > bytes ? new_chunk(room, so_far) : NULL;
    if (!chunk) /* the budget may still have what is needed */
        chunk = new_chunk(room, bytes);
    *link = chunk;
    return chunk;
}

/* Moves on from `seen`, unless another thread has. 0, or -1 when there is no more. */
static int move_on(struct room *room, struct room_chunk *seen, uint64_t bytes)
{
    int failed = 0;
    pthread_mutex_lock(&room->lock);
    if (atomic_load_explicit(&room->current, memory_order_relaxed) == seen) {
        struct room_chunk *chunk = chunk_after(room, seen, bytes);
        if (chunk)
            atomic_store_explicit(&room->current, chunk, memory_order_release);
        else
            failed = -1;
    }
    pthread_mutex_unlock(&room->lock);
    return failed;
}

void *room_get(struct room *room, uint64_t bytes)
{
    if (bytes > BLOCK_MOST_BYTES) {
        atomic_store_explicit(&room->starved, 1, memory_order_relaxed);
        return NULL;
    }
    bytes = block_round_up(bytes ? bytes : 1);
    for (;;) {
        struct room_chunk *chunk = atomic_load_explicit(&room->current, memory_order_acquire);
        if (chunk) {
            /* May go beyond the end, by threads that come too late: the chunk is full then. */
            uint64_t at = atomic_fetch_add_explicit(&chunk->used, bytes, memory_order_relaxed);
            if (at < chunk->bytes && bytes <= chunk->bytes - at)
                return chunk->block.start + at;
        }
        if (move_on(room, chunk, bytes) < 0) {
            atomic_store_explicit(&room->starved, 1, memory_order_relaxed);
            return NULL;
        }
    }
}

void room_reset(struct room *room)
{
    atomic_store_explicit(&room->starved, 0, memory_order_relaxed);
    if (!room->chunks)
        return;
    if (room->chunks->next) {
        uint64_t needed = 0;
        for (struct room_chunk *chunk = room->chunks; chunk; chunk = chunk->next) {
            uint64_t used = atomic_load_explicit(&chunk->used, memory_order_relaxed);
            needed += used < chunk->bytes ? used : chunk->bytes;
        }
        free_chunks(room);
        /* An eighth more, as batches differ. Without it the next batch begins small again. */
        room->chunks = new_chunk(room, block_round_up(needed + needed / 8));
    }
    if (room->chunks)
        atomic_store_explicit(&room->chunks->used, 0, memory_order_relaxed);
    atomic_store_explicit(&room->current, room->chunks, memory_order_release);
}
