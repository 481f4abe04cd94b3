/* chunk_cache.c: see chunk_cache.h. */
#include "chunk_cache.h"

#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>

/* A scratch, and whether a thread uses it. */
struct spare {
    struct chunk_scratch scratch; /* first: a pointer to it is one to the whole */
    int taken;
    struct spare *next;
};

struct chunk_cache {
    /* Set once. */
    uint64_t budget_bytes, recent_bytes;
    uint64_t buckets; /* a power of two */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a chunk was filled or dropped */

    /* Under the lock. */
    struct cached_chunk **bucket;
    struct cached_chunk *oldest, *newest; /* all chunks, by their last use */
    struct cached_chunk *border;          /* the oldest recent one; NULL: there is none */
    uint64_t recent_used_bytes;
    struct spare *spares;
    struct chunk_cache_stats stats;

    struct chunk_cache *next, **link; /* in `caches`, under its lock */
};

/* ---- fork --------------------------------------------------------------------------------------
 *
 * Lock order: caches_lock, then the lock of each cache. No lock is held while a chunk is unpacked,
 * so a fork does not wait for that.
 */
static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t caches_once = PTHREAD_ONCE_INIT;
static struct chunk_cache *caches;

static void drop(struct chunk_cache *cache, struct cached_chunk *chunk);

static void before_fork(void)
{
    pthread_mutex_lock(&caches_lock);
    for (struct chunk_cache *cache = caches; cache; cache = cache->next)
        pthread_mutex_lock(&cache->lock);
}

static void after_fork(void)
{
    for (struct chunk_cache *cache = caches; cache; cache = cache->next)
        pthread_mutex_unlock(&cache->lock);
    pthread_mutex_unlock(&caches_lock);
}

/* The threads that had pinned, unpacked or taken something do not exist here. */
static void after_fork_in_child(void)
{
    for (struct chunk_cache *cache = caches; cache; cache = cache->next) {
        pthread_cond_init(&cache->changed, NULL);
        for (struct cached_chunk *chunk = cache->oldest, *newer; chunk; chunk = newer) {
            newer = chunk->newer;
            chunk->pins = 0;
            if (!chunk->ready)
                drop(cache, chunk);
        }
        for (struct spare *spare = cache->spares; spare; spare = spare->next)
            spare->taken = 0;
    }
    after_fork();
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- making and ending -------------------------------------------------------------------------
 */
static uint64_t buckets_for(uint64_t chunks)
{
    uint64_t buckets = 64;
    while (buckets < chunks && buckets < 1u << 16)
        buckets *= 2;
    return buckets;
}

struct chunk_cache *chunk_cache_new(uint64_t budget_bytes, uint64_t recent_bytes,
                                    uint64_t chunk_bytes)
{
    struct chunk_cache *cache = mem_alloc(sizeof *cache);
    if (!cache)
        return NULL;
    cache->budget_bytes = budget_bytes;
    cache->recent_bytes = recent_bytes;
    cache->buckets = buckets_for(budget_bytes / (chunk_bytes ? chunk_bytes : 1));
    if (!(cache->bucket = mem_alloc_array(cache->buckets, sizeof *cache->bucket))) {
        mem_free(cache);
        return NULL;
    }
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->changed, NULL);
    pthread_once(&caches_once, watch_forks);
    pthread_mutex_lock(&caches_lock);
    cache->next = caches;
    cache->link = &caches;
    if (caches)
        caches->link = &cache->next;
    caches = cache;
    pthread_mutex_unlock(&caches_lock);
    return cache;
}

void chunk_cache_free(struct chunk_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_lock(&caches_lock);
    *cache->link = cache->next;
    if (cache->next)
        cache->next->link = cache->link;
    pthread_mutex_unlock(&caches_lock);
    while (cache->oldest)
        drop(cache, cache->oldest);
    while (cache->spares) {
        struct spare *spare = cache->spares;
        cache->spares = spare->next;
        chunk_scratch_done(&spare->scratch);
        mem_free(spare);
    }
    pthread_mutex_destroy(&cache->lock);
    pthread_cond_destroy(&cache->changed);
    mem_free(cache->bucket);
    mem_free(cache);
}

/* ---- chunks; the lock is held ------------------------------------------------------------------
 */
static struct cached_chunk **bucket_of(struct chunk_cache *cache, uint64_t field, uint64_t number)
{
    uint64_t mixed = (number * 64 + field) * 0x9e3779b97f4a7c15; /* 2^64 / the golden ratio */
    return &cache->bucket[mixed >> 32 & (cache->buckets - 1)];
}

static struct cached_chunk *find(struct chunk_cache *cache, uint64_t field, uint64_t number)
{
    struct cached_chunk *chunk = *bucket_of(cache, field, number);
    while (chunk && (chunk->field != field || chunk->number != number))
        chunk = chunk->bucket_next;
    return chunk;
}

/* The oldest recent one is no longer recent. */
static void move_border(struct chunk_cache *cache)
{
    cache->border->recent = 0;
    cache->recent_used_bytes -= cache->border->capacity;
    cache->border = cache->border->newer;
}

static void unlink_by_age(struct chunk_cache *cache, struct cached_chunk *chunk)
{
    if (chunk == cache->border)
        move_border(cache);
    else if (chunk->recent)
        cache->recent_used_bytes -= chunk->capacity;
    *(chunk->older ? &chunk->older->newer : &cache->oldest) = chunk->newer;
    *(chunk->newer ? &chunk->newer->older : &cache->newest) = chunk->older;
}

static void link_as_newest(struct chunk_cache *cache, struct cached_chunk *chunk)
{
    chunk->older = cache->newest;
    chunk->newer = NULL;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = chunk;
    cache->newest = chunk;
    chunk->recent = 1;
    cache->recent_used_bytes += chunk->capacity;
    if (!cache->border)
        cache->border = chunk;
    while (cache->recent_used_bytes > cache->recent_bytes && cache->border != chunk)
        move_border(cache);
}

static void unlink_all(struct chunk_cache *cache, struct cached_chunk *chunk)
{
    struct cached_chunk **at = bucket_of(cache, chunk->field, chunk->number);
    while (*at != chunk)
        at = &(*at)->bucket_next;
    *at = chunk->bucket_next;
    unlink_by_age(cache, chunk);
}

static void drop(struct chunk_cache *cache, struct cached_chunk *chunk)
{
    unlink_all(cache, chunk);
    cache->stats.bytes -= chunk->capacity;
    mem_free(chunk->bytes);
    mem_free(chunk);
}

/* The unpinned chunk to drop next. Pinned ones are few and mostly the newest, so this is short. */
static struct cached_chunk *find_idle(struct chunk_cache *cache)
{
    struct cached_chunk *chunk = cache->border ? cache->border->older : cache->newest;
    while (chunk && chunk->pins)
        chunk = chunk->older;
    if (chunk)
        return chunk;
    chunk = cache->border;
    while (chunk && chunk->pins)
        chunk = chunk->newer;
    return chunk;
}

/* Makes space, and reuses the memory of the last chunk that was dropped if it fits. */
static struct cached_chunk *make_space(struct chunk_cache *cache, uint64_t capacity)
{
    struct cached_chunk *idle;
    while (cache->stats.bytes + capacity > cache->budget_bytes && (idle = find_idle(cache))) {
        if (idle->capacity == capacity && cache->stats.bytes <= cache->budget_bytes) {
            unlink_all(cache, idle);
            cache->stats.bytes -= capacity;
            return idle;
        }
        drop(cache, idle);
    }
    return NULL;
}

static struct cached_chunk *make_chunk(struct chunk_cache *cache, uint64_t capacity)
{
    struct cached_chunk *chunk = make_space(cache, capacity);
    if (chunk)
        return chunk;
    if (!(chunk = mem_alloc(sizeof *chunk)))
        return NULL;
    if (!(chunk->bytes = mem_alloc(capacity))) {
        mem_free(chunk);
        return NULL;
    }
    return chunk;
}

static struct cached_chunk *add_chunk(struct chunk_cache *cache, uint64_t field, uint64_t number,
                                      uint64_t capacity)
{
    struct cached_chunk *chunk = make_chunk(cache, capacity);
    if (!chunk)
        return NULL;
    struct cached_chunk **bucket = bucket_of(cache, field, number);
    *chunk = (struct cached_chunk){.bytes = chunk->bytes,
                                   .capacity = capacity,
                                   .field = field,
                                   .number = number,
                                   .pins = 1,
                                   .bucket_next = *bucket};
    *bucket = chunk;
    link_as_newest(cache, chunk);
    cache->stats.bytes += capacity;
    if (cache->stats.bytes > cache->stats.most_bytes)
        cache->stats.most_bytes = cache->stats.bytes;
    return chunk;
}

/* ---- what threads call -------------------------------------------------------------------------
 */
int chunk_cache_take(struct chunk_cache *cache, uint64_t field, uint64_t number, uint64_t capacity,
                     int wait, struct cached_chunk **ret_chunk)
{
    int result = CHUNK_READY;
    struct cached_chunk *chunk;
    pthread_mutex_lock(&cache->lock);
    while ((chunk = find(cache, field, number)) && !chunk->ready && wait)
        pthread_cond_wait(&cache->changed, &cache->lock);
    if (chunk && !chunk->ready) {
        result = CHUNK_BUSY;
    } else if (chunk) {
        chunk->pins++;
        unlink_by_age(cache, chunk);
        link_as_newest(cache, chunk);
    } else {
        chunk = add_chunk(cache, field, number, capacity);
        result = chunk ? CHUNK_FILL : -ENOMEM;
    }
    pthread_mutex_unlock(&cache->lock);
    if (result == CHUNK_READY || result == CHUNK_FILL)
        *ret_chunk = chunk;
    return result;
}

int chunk_cache_take_absent(struct chunk_cache *cache, uint64_t field, uint64_t first,
                            uint64_t count, uint64_t capacity, struct cached_chunk **ret_chunk)
{
    struct cached_chunk *chunk = NULL;
    pthread_mutex_lock(&cache->lock);
    for (uint64_t i = 0; i < count && !chunk; i++)
        if (!find(cache, field, first + i) &&
            !(chunk = add_chunk(cache, field, first + i, capacity)))
            break;
    pthread_mutex_unlock(&cache->lock);
    if (chunk)
        *ret_chunk = chunk;
    return chunk != NULL;
}

void chunk_cache_filled(struct chunk_cache *cache, struct cached_chunk *chunk, int success)
{
    pthread_mutex_lock(&cache->lock);
    if (success) {
        chunk->ready = 1;
        cache->stats.filled++;
    } else {
        drop(cache, chunk);
    }
    pthread_cond_broadcast(&cache->changed);
    pthread_mutex_unlock(&cache->lock);
}

void chunk_cache_release(struct chunk_cache *cache, struct cached_chunk *chunk)
{
    pthread_mutex_lock(&cache->lock);
    if (!--chunk->pins && cache->stats.bytes > cache->budget_bytes)
        drop(cache, chunk); /* no other could be dropped when it was added */
    pthread_mutex_unlock(&cache->lock);
}

struct chunk_scratch *chunk_cache_take_scratch(struct chunk_cache *cache, uint64_t capacity)
{
    pthread_mutex_lock(&cache->lock);
    struct spare *spare = cache->spares;
    while (spare && spare->taken)
        spare = spare->next;
    if (!spare && (spare = mem_alloc(sizeof *spare))) {
        spare->next = cache->spares;
        cache->spares = spare;
    }
    if (spare)
        spare->taken = 1;
    pthread_mutex_unlock(&cache->lock);
    if (!spare || spare->scratch.capacity >= capacity)
        return spare ? &spare->scratch : NULL;
    struct chunk_scratch *scratch = &spare->scratch;
    uint8_t *bytes = mem_alloc(capacity), *smaller = scratch->bytes;
    if (!bytes) {
        chunk_cache_return_scratch(cache, scratch);
        return NULL;
    }
    pthread_mutex_lock(&cache->lock); /* a fork must not find the one that is freed */
    scratch->bytes = bytes;
    scratch->capacity = capacity;
    pthread_mutex_unlock(&cache->lock);
    mem_free(smaller);
    return scratch;
}

void chunk_cache_return_scratch(struct chunk_cache *cache, struct chunk_scratch *scratch)
{
    pthread_mutex_lock(&cache->lock);
    ((struct spare *)scratch)->taken = 0;
    pthread_mutex_unlock(&cache->lock);
}

struct chunk_cache_stats chunk_cache_stats(struct chunk_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct chunk_cache_stats stats = cache->stats;
    pthread_mutex_unlock(&cache->lock);
    return stats;
}
