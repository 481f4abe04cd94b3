/* chunk_cache.h: unpacked chunks, shared by all threads that read a source.
 *
 *     take()  ──► READY     pinned: read it, then release()
 *             ──► FILL      nobody has it: unpack it, then filled(), then as READY
 *             ──► BUSY      another thread is unpacking it: take another first, or wait for it
 *
 * So no chunk is unpacked by two threads at once. Chunks that are not pinned go when memory is
 * needed, and their memory is used again. The budget is exceeded only by what is pinned: one chunk
 * a thread.
 *
 *     used   long ago …………………………… │ … recent (the window that is read)
 *                      goes first ──┘
 *
 * Which one goes: epochs read a file from its beginning to its end again and again, so what was
 * used longest ago is what is wanted next. Of those that are not in use recent the last one used
 * goes first; a part of the file thus stays from epoch to epoch, as large as the budget beyond
 * `recent_bytes`. Were it the oldest, each chunk would go just before it is wanted. What was used
 * recent goes only when nothing else is left, the oldest first.
 *
 * After fork() the child has the chunks too. The lock is held over the fork, so that the lists are
 * whole; what the threads of the parent were unpacking is dropped there, and what they had pinned
 * is let go.
 */
#ifndef LEAT_LOAD_SOURCE_CHUNK_CACHE_H
#define LEAT_LOAD_SOURCE_CHUNK_CACHE_H

#include "chunk_filter.h"

struct chunk_cache;

struct cached_chunk {
    uint8_t *bytes; /* `capacity` of them; only of interest to who has it pinned */
    uint64_t capacity;
    uint64_t field, number; /* what it is */
    /* Under the cache's lock. */
    uint32_t pins;
    int ready;
    int recent; /* used so */
    struct cached_chunk *bucket_next;
    struct cached_chunk *older, *newer;
};

enum chunk_take { CHUNK_READY, CHUNK_FILL, CHUNK_BUSY };

/* NULL when out of memory. `recent_bytes`: what is read again and again before the reader goes on;
 * of them all, the budget and more: the oldest goes first. `chunk_bytes` is that of a usual chunk:
 * it sizes the table. */
struct chunk_cache *chunk_cache_new(uint64_t budget_bytes, uint64_t recent_bytes,
                                    uint64_t chunk_bytes);
void chunk_cache_free(struct chunk_cache *cache); /* takes NULL; nothing may be pinned */

/* One of enum chunk_take, or -ENOMEM. With `wait` never CHUNK_BUSY. */
int chunk_cache_take(struct chunk_cache *cache, uint64_t field, uint64_t number, uint64_t capacity,
                     int wait, struct cached_chunk **ret_chunk);

/* The first of `count` chunks from `first` on that is neither there nor being unpacked: 1, as after
 * CHUNK_FILL. 0: all are, or no memory. */
int chunk_cache_take_absent(struct chunk_cache *cache, uint64_t field, uint64_t first,
                            uint64_t count, uint64_t capacity, struct cached_chunk **ret_chunk);

/* After CHUNK_FILL. Without success the chunk is dropped, and those who wait for it try it
 * themselves. */
void chunk_cache_filled(struct chunk_cache *cache, struct cached_chunk *chunk, int success);

void chunk_cache_release(struct chunk_cache *cache, struct cached_chunk *chunk);

/* A scratch of at least `capacity` bytes; NULL when out of memory. */
struct chunk_scratch *chunk_cache_take_scratch(struct chunk_cache *cache, uint64_t capacity);
void chunk_cache_return_scratch(struct chunk_cache *cache, struct chunk_scratch *scratch);

struct chunk_cache_stats {
    uint64_t bytes, most_bytes; /* now; the most there ever were */
    uint64_t filled;            /* chunks unpacked */
};
struct chunk_cache_stats chunk_cache_stats(struct chunk_cache *cache);

#endif
