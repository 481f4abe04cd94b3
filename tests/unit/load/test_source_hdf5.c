/* test_source_hdf5.c: HDF5 files as h5py wrote them (tests/data/hdf5), whole and damaged, and
 * indexes that do not fit them. What every type, layout and filter gives is tested in Python,
 * against h5py.
 */
#include "samples.h"

#include "base/mem.h"
#include "base/stats.h"
#include "load/source/hdf5/hdf5.h"

#include "../../data/hdf5/index.inc"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define ROWS  24
#define ITEMS 4

enum { CONTIGUOUS, COMPACT, CHUNKED, GZIP, LZF, ALL }; /* places in earliest[] and latest[] */

static const char *data_file(const char *name)
{
    static char path[512];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/hdf5/%s.h5", data ? data : "tests/data", name);
    return path;
}

static int open_some(const char *path, const struct leat_hdf5_dataset *datasets, uint32_t count,
                     struct leat_source **ret)
{
    struct leat_hdf5 asked = {.path = path, .datasets = datasets, .count = count};
    return leat_source_hdf5(&asked, ret, &err);
}

/* Samples in file order, by the consumer alone. Returns how many were read, or the error. */
static int64_t read_all(struct leat_source *source, int check)
{
    struct leat_loader_options options = {
        .batch_size = 7, .threads = LEAT_THREADS_NONE, .memory_bytes = 1u << 30};
    struct leat_loader *l;
    struct leat_batch *batch;
    int64_t samples = 0;
    int got = leat_loader_new(source, &options, &l, &err);
    if (got < 0)
        return got;
    leat_loader_start(l, 0, &err);
    while ((got = leat_loader_next(l, -1, &batch, &err)) > 0) {
        for (uint32_t f = 0; check && f < batch->fields; f++)
            for (int64_t i = 0; i < batch->samples * ITEMS; i++)
                assert_int_equal(((const int32_t *)batch->data[f])[i], samples * ITEMS + i);
        samples += batch->samples;
        leat_batch_unref(batch);
        if (samples > 100000) /* a damaged shape: enough */
            break;
    }
    leat_loader_close(l);
    return got < 0 ? got : samples;
}

static void test_files_of_h5py(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct leat_source *source = NULL;
        must(open_some(data_file(i ? "latest" : "earliest"), i ? latest : earliest, ALL, &source));
        assert_int_equal(leat_source_count(source), ROWS);
        assert_int_equal(read_all(source, 1), ROWS);
        leat_source_unref(source);
    }
}

/* Many threads, many orders: what is shared is the cache. The index of a row is its first item. */
static void test_threads_share_chunks(void **state)
{
    struct leat_source *source = NULL;
    must(open_some(data_file("latest"), &latest[GZIP], 2, &source));
    for (int order = LEAT_ORDER_SEQUENTIAL; order <= LEAT_ORDER_WINDOW; order++) {
        struct leat_loader *l = load(
            source, (struct leat_loader_options){.batch_size = 5, .threads = 4, .order = order});
        for (uint64_t epoch = 0; epoch < 10; epoch++) {
            int seen[ROWS] = {0};
            struct leat_batch *batch;
            must(leat_loader_start(l, epoch, &err));
            while ((batch = next(l))) {
                for (uint32_t f = 0; f < 2; f++)
                    for (int64_t i = 0; i < batch->samples * ITEMS; i++)
                        assert_int_equal(((const int32_t *)batch->data[f])[i],
                                         batch->indices[i / ITEMS] * ITEMS + i % ITEMS);
                for (int64_t i = 0; i < batch->samples; i++)
                    seen[batch->indices[i]]++;
                leat_batch_unref(batch);
            }
            for (int i = 0; i < ROWS; i++)
                assert_int_equal(seen[i], 1);
        }
        leat_loader_close(l);
    }
    leat_source_unref(source);
}

/* Samples of a window: whole chunks of each dataset, as many as let two windows fit. */
static void test_window(void **state)
{
    struct leat_hdf5 asked = {.path = data_file("latest"), .datasets = &latest[GZIP], .count = 1};
    struct leat_source *source = NULL;
    must(leat_source_hdf5(&asked, &source, &err));
    assert_int_equal(source->window, 4100); /* chunks of 5 */
    leat_source_unref(source);
    asked.count = 2;
    must(leat_source_hdf5(&asked, &source, &err));
    assert_int_equal(source->window, 4140); /* of 5 and 12 */
    assert_non_null(strstr(leat_source_decode(source), "gzip from "));
    assert_non_null(strstr(leat_source_decode(source), ", group/lzf from "));
    leat_source_unref(source);
    asked.cache_bytes = 1;
    asked.count = 1;
    must(leat_source_hdf5(&asked, &source, &err));
    assert_int_equal(source->window, 5);
    leat_source_unref(source);
}

/* With the smallest cache the order "window" unpacks each of the 10 chunks once per epoch or less
 * (one may stay until the next), "full" more often; with the usual one they are unpacked once for
 * all epochs. */
static void test_each_chunk_once_an_epoch(void **state)
{
    struct leat_hdf5 asked = {.path = data_file("latest"), .datasets = &latest[GZIP], .count = 1};
    static const struct {
        enum leat_order order;
        uint64_t cache_bytes, least, most;
    } cases[] = {
        {LEAT_ORDER_WINDOW,     1, 26, 30  },
        {LEAT_ORDER_SEQUENTIAL, 1, 26, 30  },
        {LEAT_ORDER_FULL,       1, 60, 1000},
        {LEAT_ORDER_FULL,       0, 10, 10  },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct leat_source *source = NULL;
        struct leat_batch *batch;
        asked.cache_bytes = cases[i].cache_bytes;
        must(leat_source_hdf5(&asked, &source, &err));
        struct leat_loader *l = load(
            source, (struct leat_loader_options){
                        .batch_size = 1, .threads = LEAT_THREADS_NONE, .order = cases[i].order});
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            must(leat_loader_start(l, epoch, &err));
            while ((batch = next(l)))
                leat_batch_unref(batch);
        }
        leat_loader_close(l);
        uint64_t filled = chunk_cache_stats(hdf5_source_cache(source)).filled;
        assert_in_range(filled, cases[i].least, cases[i].most);
        leat_source_unref(source);
    }
}

static void *read_first(void *source)
{
    struct leat_batch *batch;
    int64_t index = 0;
    return leat_source_read(source, &index, 1, NULL, &batch, NULL) < 0 ? NULL : batch;
}

/* A thread that must wait for a chunk unpacks the others of the window meanwhile. */
static void test_waiting_threads_unpack_ahead(void **state)
{
    struct leat_source *source = NULL;
    struct cached_chunk *taken;
    struct leat_batch *batch;
    pthread_t thread;
    must(open_some(data_file("latest"), &latest[GZIP], 1, &source));
    struct chunk_cache *cache = hdf5_source_cache(source);
    assert_int_equal(chunk_cache_take(cache, 0, 0, 4096, 0, &taken), CHUNK_FILL);
    assert_int_equal(pthread_create(&thread, NULL, read_first, source), 0);
    for (int i = 0; i < 60000 && chunk_cache_stats(cache).filled < 9; i++)
        usleep(1000);
    assert_int_equal(chunk_cache_stats(cache).filled, 9); /* all but the first of 10 */
    chunk_cache_filled(cache, taken, 0); /* given up: the waiting thread unpacks it */
    pthread_join(thread, (void **)&batch);
    assert_non_null(batch);
    for (int i = 0; i < ITEMS; i++)
        assert_int_equal(((const int32_t *)batch->data[0])[i], i);
    leat_batch_unref(batch);
    assert_int_equal(chunk_cache_stats(cache).filled, 10);
    assert_int_equal(read_all(source, 1), ROWS); /* and what lay ahead is right */
    assert_int_equal(chunk_cache_stats(cache).filled, 10);
    leat_source_unref(source);
}

static size_t slurp(const char *path, uint8_t *bytes, size_t most)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, bytes, most);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

/* A mutated file, or an index with one wrong number, gives data or an error; with `truth` never
 * wrong data. */
static void mutate(const struct leat_hdf5_dataset *datasets, uint32_t count, int mutations,
                   int truth)
{
    static uint8_t bytes[1 << 16], copy[1 << 16];
    struct leat_hdf5_dataset asked[ALL];
    char path[] = "/tmp/leat-h5-XXXXXX";
    size_t size = slurp(data_file("latest"), bytes, sizeof bytes);
    int fd = mkstemp(path), refused = 0;
    assert_true(size > 1000 && fd >= 0);
    for (int m = 0; m < mutations; m++) {
        uint64_t r = stats_random(7, (uint64_t)m);
        memcpy(copy, bytes, size);
        memcpy(asked, datasets, count * sizeof *asked);
        for (int k = 0; k < 1 + (int)(r >> 20) % 30; k++) {
            uint64_t q = stats_random(r, (uint64_t)k);
            copy[q % size] = q >> 60 ? (uint8_t)(q >> 32) : 0xff;
        }
        int64_t *const numbers[] = {&asked[0].shape[0], &asked[0].shape[1],
                                    &asked[count - 1].chunk[0], &asked[count - 1].chunk[1],
                                    (int64_t *)&asked[0].offset};
        if (!truth && r % 2)
            *numbers[(r >> 8) % 5] ^= (int64_t)(UINT64_C(1) << (r >> 16) % 64);
        size_t length = r % 16 == 0 ? (size_t)(r >> 8) % size : size;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, copy, length, 0), length);
        struct leat_source *source = NULL;
        err.text[0] = 0;
        int64_t got = open_some(path, asked, count, &source);
        if (got >= 0)
            got = read_all(source, truth);
        if (got < 0)
            assert_true(err.text[0]);
        else if (truth)
            assert_int_equal(got, ROWS);
        refused += got < 0;
        leat_source_unref(source);
    }
    assert_true(refused > mutations / 10); /* else the damage does not reach anything */
    close(fd);
    unlink(path);
}

static void test_mutated_files(void **state)
{
    mutate(latest, ALL, 300, 0);
}

/* The chunks of `gzip` are under checksums: damage never gives a wrong value. */
static void test_mutated_file_with_checksums(void **state)
{
    mutate(&latest[GZIP], 1, 300, 1);
}

/* Numbers that contradict each other or the file are refused. */
static void test_wrong_indexes(void **state)
{
    static const struct leat_hdf5_chunk twice[] =
        {
            {3, 2048, 60, 0},
            {3, 2048, 60, 0}
    },
                                        outside[] = {{10, 2048, 60, 0}};
    static const struct leat_hdf5_filter unknown = {LEAT_HDF5_FILTERS_COUNT, 0},
                                         no_items = {LEAT_HDF5_SHUFFLE, 0};
    struct leat_hdf5_dataset d[10];
    for (int i = 0; i < 10; i++)
        d[i] = latest[i < 3 ? CONTIGUOUS : CHUNKED];
    d[0].offset = 1 << 20;
    d[1].shape[1] = INT64_MAX / 4;
    d[2].shape[1] = 0;
    d[3].chunks = twice, d[3].chunks_count = 2;
    d[4].chunks = outside, d[4].chunks_count = 1;
    d[5].filters = &unknown, d[5].filters_count = 1;
    d[6].filters = &no_items, d[6].filters_count = 1;
    d[7].chunk[1] = 0;
    d[8].dims = 0;
    d[9].dtype = LEAT_RAW;
    for (int i = 0; i < 10; i++) {
        struct leat_source *source = NULL;
        err.text[0] = 0;
        int failed = open_some(data_file("latest"), &d[i], 1, &source);
        assert_true(failed == -LEAT_E_CORRUPT || failed == -LEAT_E_USAGE);
        assert_non_null(strstr(err.text, d[i].name));
    }
}

/* Every allocation fails once: an error, or all data; nothing leaks (ASan sees to that). */
static void test_out_of_memory(void **state)
{
    for (unsigned long n = 1; n < 60; n++) {
        struct leat_source *source = NULL;
        mem_fail_at(n);
        int failed = open_some(data_file("latest"), latest, ALL, &source);
        if (!failed) {
            int64_t got = read_all(source, 1);
            mem_fail_at(0);
            assert_true(got < 0 || got == ROWS);
            leat_source_unref(source);
        }
        mem_fail_at(0);
    }
}

static void test_not_there(void **state)
{
    struct leat_source *source;
    struct leat_hdf5 asked = {.path = data_file("latest"), .datasets = latest};
    assert_int_equal(leat_source_hdf5(&asked, &source, &err), -LEAT_E_USAGE);
    asked.count = 1;
    asked.path = "/nowhere.h5";
    assert_int_equal(leat_source_hdf5(&asked, &source, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_of_h5py),
        cmocka_unit_test(test_threads_share_chunks),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_each_chunk_once_an_epoch),
        cmocka_unit_test(test_waiting_threads_unpack_ahead),
        cmocka_unit_test(test_mutated_files),
        cmocka_unit_test(test_mutated_file_with_checksums),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_wrong_indexes),
        cmocka_unit_test(test_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
