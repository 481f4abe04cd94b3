/* chunk_cache.h: unpacked chunks, shared by all threads that read a source.
 *
 *     take()  ──► READY     pinned: read it, then release()
 *             ──► FILL      not in the cache: unpack it, then filled(), then as READY
 *             ──► BUSY      another thread is unpacking it: take another first, or wait for it
 *
 * So no chunk is unpacked by two threads at once. Unpinned chunks are dropped when memory is
 * needed, and their memory is reused. The budget is exceeded only by pinned chunks, one per thread.
 *
 *     last use   long ago …………………………… │ … recent (the window that is read)
 *                          dropped first ┘
 *
 * Epochs read a file from start to end again and again, so the chunk used longest ago is needed
 * next. Therefore, of the chunks that are not recent, the last used one is dropped first; a part of
 * the file as large as the budget without `recent_bytes` thus stays from epoch to epoch. If the
 * oldest went first, each chunk would be dropped just before it is needed. Recent chunks are
 * dropped only when there are no others, the oldest first.
 *
 * After fork() the child has the chunks too. The locks are held over the fork, so the lists are
 * consistent; what threads of the parent were unpacking is dropped there, and their pins are
 * removed.
 */
#ifndef LEAT_LOAD_SOURCE_CHUNK_CACHE_H
#define LEAT_LOAD_SOURCE_CHUNK_CACHE_H

#include "chunk_filter.h"

struct chunk_cache;

struct cached_chunk {
    uint8_t *bytes; /* `capacity` of them; valid while pinned */
    uint64_t capacity;
    uint64_t field, number; /* what it is */
    /* Under the cache's lock. */
    uint32_t pins;
    int ready;
    int recent; /* among the last `recent_bytes` used */
    struct cached_chunk *bucket_next;
    struct cached_chunk *older, *newer;
};

enum chunk_take { CHUNK_READY, CHUNK_FILL, CHUNK_BUSY };

/* NULL when out of memory. `recent_bytes`: size of the window that is read; at least the budget:
 * the oldest chunk is dropped first. `chunk_bytes`: of a usual chunk, sizes the table. */
struct chunk_cache *chunk_cache_new(uint64_t budget_bytes, uint64_t recent_bytes,
                                    uint64_t chunk_bytes);
void chunk_cache_free(struct chunk_cache *cache); /* takes NULL; nothing may be pinned */

/* One of enum chunk_take, or -ENOMEM. With `wait` never CHUNK_BUSY. */
int chunk_cache_take(struct chunk_cache *cache, uint64_t field, uint64_t number, uint64_t capacity,
                     int wait, struct cached_chunk **ret_chunk);

/* The first of `count` chunks from `first` on that is not in the cache nor being unpacked: 1, as
 * after CHUNK_FILL. 0: there is none, or no memory. */
int chunk_cache_take_absent(struct chunk_cache *cache, uint64_t field, uint64_t first,
                            uint64_t count, uint64_t capacity, struct cached_chunk **ret_chunk);

/* After CHUNK_FILL. Without success the chunk is dropped, and threads that wait for it unpack it
 * themselves. */
void chunk_cache_filled(struct chunk_cache *cache, struct cached_chunk *chunk, int success);

void chunk_cache_release(struct chunk_cache *cache, struct cached_chunk *chunk);

/* A scratch of at least `capacity` bytes; NULL when out of memory. */
struct chunk_scratch *chunk_cache_take_scratch(struct chunk_cache *cache, uint64_t capacity);
void chunk_cache_return_scratch(struct chunk_cache *cache, struct chunk_scratch *scratch);

struct chunk_cache_stats {
    uint64_t bytes, most_bytes; /* now; at most so far */
    uint64_t filled;            /* chunks unpacked */
};
struct chunk_cache_stats chunk_cache_stats(struct chunk_cache *cache);

#endif
