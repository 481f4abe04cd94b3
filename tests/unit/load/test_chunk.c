/* test_chunk.c: the filters of HDF5's chunks, and the cache of unpacked ones. */
#include "samples.h"

#include "base/mem.h"
#include "load/source/hdf5/chunk_cache.h"

#include <pthread.h>
#include <sys/wait.h>

/* ---- filters ----------------------------------------------------------------------------------
 */
static uint8_t out[2000];
static const char *why;

/* In buffers of the minimal size, so that a sanitizer sees accesses outside. */
static int unfilter(const struct chunk_pipeline *p, uint32_t mask, const void *bytes, size_t count,
                    uint64_t chunk_bytes)
{
    uint64_t capacity = chunk_filter_capacity(chunk_bytes);
    struct chunk_scratch scratch = {.bytes = mem_alloc(capacity), .capacity = capacity};
    uint8_t *stored = malloc(count + !count), *chunk = malloc(capacity);
    memcpy(stored, bytes, count);
    why = NULL;
    int failed = chunk_unfilter(p, mask, stored, count, &scratch, chunk, chunk_bytes, &why);
    assert_true(!failed == !why);
    memcpy(out, chunk, failed ? 0 : chunk_bytes);
    chunk_scratch_done(&scratch);
    free(stored);
    free(chunk);
    return failed;
}

static const struct chunk_pipeline lzf = {1, {{LEAT_HDF5_LZF, 0}}};

static void test_lzf(void **state)
{
    /* Three literals, a match of 7 + 3 + 2 three back, one literal. */
    static const uint8_t packed[] = {2, 'a', 'b', 'c', 7 << 5, 3, 2, 0, 'x'};
    assert_int_equal(unfilter(&lzf, 0, packed, sizeof packed, 3 + 12 + 1), 0);
    assert_memory_equal(out, "abcabcabcabcabcx", 16);
    /* A match of one byte back repeats it. */
    static const uint8_t run[] = {0, 'z', 7 << 5, 255, 0};
    assert_int_equal(unfilter(&lzf, 0, run, sizeof run, 265), 0);
    for (int i = 0; i < 265; i++)
        assert_int_equal(out[i], 'z');
}

static void test_lzf_with_bounds(void **state)
{
    static const uint8_t literals[] = {31, 'a', 'b'};       /* more than there are */
    static const uint8_t before[] = {0, 'a', 1 << 5, 1};    /* two back, where one is */
    static const uint8_t cut[] = {0, 'a', 1 << 5};          /* no distance */
    static const uint8_t cut_long[] = {0, 'a', 7 << 5};     /* no length */
    static const uint8_t nothing[] = {0, 'a'};              /* too little */
    static const uint8_t much[] = {0, 'a', 7 << 5, 255, 0}; /* too much */
    assert_int_equal(unfilter(&lzf, 0, literals, 3, 32), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, before, 4, 4), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, cut, 3, 4), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, cut_long, 3, 4), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, nothing, 2, 4), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, much, 5, 4), -LEAT_E_CORRUPT);
    assert_int_equal(unfilter(&lzf, 0, nothing, 0, 4), -LEAT_E_CORRUPT);
}

/* Items of 1 to 9 bytes and a rest, shuffled and back. */
static void test_shuffle(void **state)
{
    uint8_t plain[1003], shuffled[1003];
    for (uint32_t size = 1; size < 10; size++) {
        struct chunk_pipeline p = {1, {{LEAT_HDF5_SHUFFLE, size}}};
        size_t items = sizeof plain / size;
        for (size_t i = 0; i < sizeof plain; i++)
            plain[i] = (uint8_t)(i * 7 + i / 256);
        memcpy(shuffled, plain, sizeof plain);
        for (size_t i = 0; i < items; i++)
            for (size_t b = 0; b < size; b++)
                shuffled[b * items + i] = plain[i * size + b];
        assert_int_equal(unfilter(&p, 0, shuffled, sizeof plain, sizeof plain), 0);
        assert_memory_equal(out, plain, sizeof plain);
        assert_int_equal(unfilter(&p, 1, plain, sizeof plain, sizeof plain), 0); /* not applied */
        assert_memory_equal(out, plain, sizeof plain);
    }
}

/* The checksum by its definition, over big-endian words. */
static void test_fletcher32(void **state)
{
    struct chunk_pipeline p = {1, {{LEAT_HDF5_FLETCHER32, 0}}};
    uint8_t stored[12] = "abcde";
    uint32_t words[] = {0x6162, 0x6364, 0x6500}, sum = 0, sums = 0;
    for (int i = 0; i < 3; i++) {
        sum += words[i];
        sums += sum;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sums = (sums & 0xffff) + (sums >> 16);
    uint32_t value = sums << 16 | sum;
    for (int i = 0; i < 4; i++)
        stored[5 + i] = (uint8_t)(value >> 8 * i);
    assert_int_equal(unfilter(&p, 0, stored, 9, 5), 0);
    assert_memory_equal(out, "abcde", 5);
    for (int i = 0; i < 9; i++) { /* every byte counts */
        stored[i] ^= 1;
        assert_int_equal(unfilter(&p, 0, stored, 9, 5), -LEAT_E_CORRUPT);
        stored[i] ^= 1;
    }
    assert_int_equal(unfilter(&p, 0, stored, 3, 0), -LEAT_E_CORRUPT);
    uint8_t zeros[104] = {0}; /* zeros have the sum 0, ones do not */
    assert_int_equal(unfilter(&p, 0, zeros, 104, 100), 0);
    memset(zeros, 255, 100);
    assert_int_equal(unfilter(&p, 0, zeros, 104, 100), -LEAT_E_CORRUPT);
}

static void test_impossible_sizes(void **state)
{
    struct chunk_pipeline deflate = {1, {{LEAT_HDF5_DEFLATE, 0}}};
    assert_true(chunk_filter_plausible(&deflate, 0, 100, 100 * 1032));
    assert_false(chunk_filter_plausible(&deflate, 0, 100, 100 * 1032 + 1));
    assert_false(chunk_filter_plausible(&deflate, 1, 100, 101));
    assert_false(chunk_filter_plausible(&lzf, 0, 100, 10000));
}

/* ---- the cache --------------------------------------------------------------------------------
 */
enum { CHUNKS = 40, ROOM = 100, THREADS = 6, ROUNDS = 400 };

struct shared {
    struct chunk_cache *cache;
    atomic_int filling[CHUNKS]; /* threads that unpack it right now */
    atomic_int filled[CHUNKS];
    atomic_int at_once; /* a chunk was unpacked by two threads at the same time */
    atomic_int wrong;
};

static void use_chunk(struct shared *s, uint64_t number, int wait)
{
    struct cached_chunk *chunk;
    int result = chunk_cache_take(s->cache, 0, number, ROOM, wait, &chunk);
    if (result == CHUNK_BUSY) { /* not returned to a caller that waits */
        if (wait)
            atomic_store(&s->wrong, 1);
        return;
    }
    if (result == CHUNK_FILL) {
        if (atomic_fetch_add(&s->filling[number], 1))
            atomic_store(&s->at_once, 1);
        sched_yield();
        memset(chunk->bytes, (int)number, ROOM);
        atomic_fetch_add(&s->filled[number], 1);
        atomic_fetch_sub(&s->filling[number], 1);
        chunk_cache_filled(s->cache, chunk, 1);
    }
    for (int i = 0; i < ROOM; i++)
        if (chunk->bytes[i] != number)
            atomic_store(&s->wrong, 1);
    chunk_cache_release(s->cache, chunk);
}

static void *use_chunks(void *argument)
{
    struct shared *s = argument;
    unsigned seed = (unsigned)(uintptr_t)&s;
    for (int i = 0; i < ROUNDS; i++)
        use_chunk(s, (uint64_t)rand_r(&seed) % CHUNKS, i % 3 > 0);
    return NULL;
}

static void use_by_threads(struct shared *s)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, use_chunks, s);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(s->at_once);
    assert_false(s->wrong);
}

static void test_each_chunk_once(void **state)
{
    struct shared s = {.cache = chunk_cache_new(CHUNKS * ROOM, 2 * ROOM, ROOM)};
    use_by_threads(&s);
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(s.filled[i], 1);
    chunk_cache_free(s.cache);
}

static void test_budget(void **state)
{
    struct shared s = {.cache = chunk_cache_new(5 * ROOM, 2 * ROOM, ROOM)};
    use_by_threads(&s);
    struct chunk_cache_stats stats = chunk_cache_stats(s.cache);
    assert_true(stats.bytes <= 5 * ROOM && stats.most_bytes <= (5 + THREADS) * ROOM);
    assert_true(stats.filled > CHUNKS);
    chunk_cache_free(s.cache);
}

/* The chunk that was not used for longest is dropped. */
static void test_oldest_is_dropped(void **state)
{
    struct shared s = {.cache = chunk_cache_new(3 * ROOM, 3 * ROOM, ROOM)};
    static const uint64_t order[] = {0, 1, 2, 0, 3, 0, 2, 1};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        use_chunk(&s, order[i], 1);
    assert_int_equal(s.filled[0], 1);
    assert_int_equal(s.filled[1], 2); /* made space for 3 */
    assert_int_equal(s.filled[2], 1);
    chunk_cache_free(s.cache);
}

/* Epochs over 10 chunks, in windows of 2 that are used several times, with space for 6: about 4
 * stay from epoch to epoch. By age alone none would. */
static void test_a_part_stays_over_epochs(void **state)
{
    struct shared s = {.cache = chunk_cache_new(6 * ROOM, 2 * ROOM, ROOM)};
    uint64_t before = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        for (uint64_t window = 0; window < 10; window += 2)
            for (int use = 0; use < 6; use++)
                use_chunk(&s, window + (uint64_t)use % 2, 1);
        uint64_t filled = chunk_cache_stats(s.cache).filled;
        assert_in_range(filled - before, epoch ? 4 : 10, epoch ? 7 : 10);
        before = filled;
    }
    assert_int_equal(chunk_cache_stats(s.cache).most_bytes, 6 * ROOM);
    chunk_cache_free(s.cache);
}

/* The first of some chunks that is neither in the cache nor being unpacked. */
static void test_take_absent(void **state)
{
    struct shared s = {.cache = chunk_cache_new(9 * ROOM, 9 * ROOM, ROOM)};
    struct cached_chunk *making, *absent, *none = NULL;
    use_chunk(&s, 4, 1);
    assert_int_equal(chunk_cache_take(s.cache, 0, 5, ROOM, 1, &making), CHUNK_FILL);
    assert_int_equal(chunk_cache_take_absent(s.cache, 0, 4, 3, ROOM, &absent), 1);
    assert_int_equal(absent->number, 6);
    assert_int_equal(chunk_cache_take_absent(s.cache, 0, 4, 3, ROOM, &none), 0);
    assert_null(none);
    assert_int_equal(chunk_cache_take_absent(s.cache, 1, 4, 3, ROOM, &none), 1); /* another field */
    assert_int_equal(none->number, 4);
    chunk_cache_filled(s.cache, none, 0);
    memset(absent->bytes, 6, ROOM);
    chunk_cache_filled(s.cache, absent, 1);
    chunk_cache_release(s.cache, absent);
    use_chunk(&s, 6, 0);
    assert_int_equal(s.filled[6], 0); /* it was in the cache */
    assert_int_equal(s.wrong, 0);
    chunk_cache_filled(s.cache, making, 0);
    chunk_cache_free(s.cache);
}

/* A chunk that could not be unpacked is dropped: the next thread tries again. */
static void test_failure_is_not_kept(void **state)
{
    struct chunk_cache *cache = chunk_cache_new(3 * ROOM, 3 * ROOM, ROOM);
    struct cached_chunk *chunk;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chunk_cache_take(cache, 0, 7, ROOM, 1, &chunk), CHUNK_FILL);
        chunk_cache_filled(cache, chunk, 0);
    }
    assert_int_equal(chunk_cache_stats(cache).bytes, 0);
    chunk_cache_free(cache);
}

/* A child forked while threads had unpacked, pinned and taken a scratch can do all of it again. */
static void test_fork(void **state)
{
    struct chunk_cache *cache = chunk_cache_new(3 * ROOM, 3 * ROOM, ROOM);
    struct cached_chunk *pinned, *filling, *again;
    assert_int_equal(chunk_cache_take(cache, 0, 1, ROOM, 1, &pinned), CHUNK_FILL);
    memset(pinned->bytes, 1, ROOM);
    chunk_cache_filled(cache, pinned, 1);
    assert_int_equal(chunk_cache_take(cache, 0, 2, ROOM, 1, &filling), CHUNK_FILL);
    struct chunk_scratch *taken = chunk_cache_take_scratch(cache, ROOM);
    pid_t child = fork();
    if (!child) {
        alarm(20);
        int fine = chunk_cache_take(cache, 0, 1, ROOM, 1, &again) == CHUNK_READY &&
                   again->bytes[ROOM - 1] == 1;
        chunk_cache_release(cache, again);
        fine = fine && chunk_cache_take(cache, 0, 2, ROOM, 1, &again) == CHUNK_FILL;
        fine = fine && chunk_cache_take_scratch(cache, ROOM) == taken;
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chunk_cache_take(cache, 0, 2, ROOM, 0, &again), CHUNK_BUSY);
    chunk_cache_filled(cache, filling, 1);
    chunk_cache_release(cache, filling);
    chunk_cache_release(cache, pinned);
    chunk_cache_return_scratch(cache, taken);
    chunk_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lzf),
        cmocka_unit_test(test_lzf_with_bounds),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_fletcher32),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_each_chunk_once),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_oldest_is_dropped),
        cmocka_unit_test(test_a_part_stays_over_epochs),
        cmocka_unit_test(test_take_absent),
        cmocka_unit_test(test_failure_is_not_kept),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
