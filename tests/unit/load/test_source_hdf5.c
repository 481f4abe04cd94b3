/* test_source_hdf5.c: HDF5 files as h5py wrote them (tests/data/hdf5), whole and damaged, with the
 * libhdf5 that h5py brought; and with one that crashes, hangs or talks nonsense. What every type,
 * layout and filter gives is tested in Python, beside h5py itself. */
#include "samples.h"

#include "base/mem.h"
#include "base/stats.h"
#include "load/source/hdf5/hdf5.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>

#define ROWS  24
#define ITEMS 4

static const char *const all[] = {"contiguous", "compact", "chunked", "gzip", "group/lzf"};

/* The libhdf5 of h5py in .venv; NULL where there is none. */
static const char *library(void)
{
    static char path[512];
    const char *root = getenv("LEAT_SOURCE");
    char pattern[400];
    glob_t found;
    if (*path)
        return path;
    snprintf(pattern, sizeof pattern, "%s/.venv/lib/python3*/site-packages/h5py.libs/libhdf5-*.so*",
             root ? root : ".");
    if (glob(pattern, 0, NULL, &found) == 0)
        snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return *path ? path : NULL;
}

#define need_library()                                                                             \
    if (!library())                                                                                \
    skip()

static const char *data_file(const char *name)
{
    static char path[512];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/hdf5/%s.h5", data ? data : "tests/data", name);
    return path;
}

static int open_some(const char *path, const char *const *names, uint32_t count,
                     struct leat_source **ret)
{
    const char *libraries[] = {library()};
    struct leat_hdf5 asked = {.path = path,
                              .datasets = names,
                              .count = count,
                              .libraries = libraries,
                              .libraries_count = 1};
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
    need_library();
    for (int i = 0; i < 2; i++) {
        struct leat_source *source = NULL;
        must(open_some(data_file(i ? "latest" : "earliest"), all, 5, &source));
        assert_int_equal(leat_source_count(source), ROWS);
        assert_int_equal(read_all(source, 1), ROWS);
        leat_source_unref(source);
    }
}

/* Many threads, many orders: what is shared is the cache. The index of a row is its first item. */
static void test_threads_share_chunks(void **state)
{
    need_library();
    static const char *const packed[] = {"gzip", "group/lzf"};
    struct leat_source *source = NULL;
    must(open_some(data_file("latest"), packed, 2, &source));
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
    need_library();
    static const char *const gzip[] = {"gzip"}, *const both[] = {"gzip", "group/lzf"};
    const char *libraries[] = {library()};
    struct leat_hdf5 asked = {.path = data_file("latest"),
                              .datasets = gzip,
                              .count = 1,
                              .libraries = libraries,
                              .libraries_count = 1};
    struct leat_source *source = NULL;
    must(leat_source_hdf5(&asked, &source, &err));
    assert_int_equal(source->window, 4100); /* chunks of 5 */
    leat_source_unref(source);
    asked.datasets = both;
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

/* With the smallest cache the order "window" unpacks each of the 10 chunks once an epoch or less
 * (one may stay until the next), "full" more often; with the usual one they are unpacked once for
 * all epochs. */
static void test_each_chunk_once_an_epoch(void **state)
{
    need_library();
    static const char *const gzip[] = {"gzip"};
    const char *libraries[] = {library()};
    struct leat_hdf5 asked = {.path = data_file("latest"),
                              .datasets = gzip,
                              .count = 1,
                              .libraries = libraries,
                              .libraries_count = 1};
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

/* One thread wants a chunk that another, here the test, is unpacking. */
static void *read_first(void *source)
{
    struct leat_batch *batch;
    int64_t index = 0;
    return leat_source_read(source, &index, 1, NULL, &batch, NULL) < 0 ? NULL : batch;
}

/* Who must wait for a chunk unpacks the others of the window meanwhile, and then gets his own. */
static void test_who_waits_unpacks_ahead(void **state)
{
    need_library();
    static const char *const gzip[] = {"gzip"};
    struct leat_source *source = NULL;
    struct cached_chunk *taken;
    struct leat_batch *batch;
    pthread_t thread;
    must(open_some(data_file("latest"), gzip, 1, &source));
    struct chunk_cache *cache = hdf5_source_cache(source);
    assert_int_equal(chunk_cache_take(cache, 0, 0, 4096, 0, &taken), CHUNK_FILL);
    assert_int_equal(pthread_create(&thread, NULL, read_first, source), 0);
    for (int i = 0; i < 60000 && chunk_cache_stats(cache).filled < 9; i++)
        usleep(1000);
    assert_int_equal(chunk_cache_stats(cache).filled, 9); /* all but the first of 10 */
    chunk_cache_filled(cache, taken, 0);                  /* given up: it is his now */
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

/* Every mutated file gives data or a sentence. `truth`: and wrong data never. */
static void mutate(const char *name, const char *const *names, uint32_t count, int mutations,
                   int truth)
{
    static uint8_t bytes[1 << 16], copy[1 << 16];
    char path[] = "/tmp/leat-h5-XXXXXX";
    size_t size = slurp(data_file(name), bytes, sizeof bytes);
    int fd = mkstemp(path), refused = 0;
    assert_true(size > 1000 && fd >= 0);
    for (int m = 0; m < mutations; m++) {
        uint64_t r = stats_random(7, (uint64_t)m);
        memcpy(copy, bytes, size);
        for (int k = 0; k < 1 + (int)(r >> 20) % 6; k++) {
            uint64_t q = stats_random(r, (uint64_t)k);
            copy[q % size] = q >> 60 ? (uint8_t)(q >> 32) : 0xff;
        }
        size_t length = r % 16 == 0 ? (size_t)(r >> 8) % size : size;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, copy, length, 0), length);
        struct leat_source *source = NULL;
        err.text[0] = 0;
        if (open_some(path, names, count, &source) < 0) {
            assert_true(err.text[0]);
            refused++;
            continue;
        }
        int64_t got = read_all(source, truth);
        if (truth && got >= 0)
            assert_int_equal(got, ROWS);
        leat_source_unref(source);
    }
    assert_true(refused > mutations / 10); /* else the damage does not reach anything */
    close(fd);
    unlink(path);
}

static void test_mutated_files(void **state)
{
    need_library();
    mutate("earliest", all, 5, 200, 0);
    mutate("latest", all, 5, 100, 0);
}

/* Descriptions and data are under checksums: whatever is damaged, there is no wrong value. */
static void test_mutated_file_with_checksums(void **state)
{
    need_library();
    static const char *const gzip[] = {"gzip"};
    mutate("latest", gzip, 1, 200, 1);
}

/* Every allocation fails once: an error, or all data; nothing leaks (ASan sees to that). */
static void test_out_of_memory(void **state)
{
    need_library();
    for (unsigned long n = 1; n < 60; n++) {
        struct leat_source *source = NULL;
        mem_fail_at(n);
        int failed = open_some(data_file("latest"), all, 5, &source);
        if (!failed) {
            int64_t got = read_all(source, 1);
            mem_fail_at(0);
            assert_true(got < 0 || got == ROWS);
            leat_source_unref(source);
        }
        mem_fail_at(0);
    }
}

/* ---- a library that misbehaves ----------------------------------------------------------------
 */
static const char *fake_library(void)
{
    static char path[512];
    const char *build = getenv("LEAT_BUILD");
    snprintf(path, sizeof path, "%s/tests/unit/load/fake_hdf5.so", build ? build : "build");
    return path;
}

static const char *said_of(const char *how, int silence_ms)
{
    const char *libraries[] = {fake_library()}, *names[] = {"x"};
    struct leat_hdf5 asked = {.path = data_file("latest"),
                              .datasets = names,
                              .count = 1,
                              .libraries = libraries,
                              .libraries_count = 1,
                              .silence_ms = silence_ms};
    struct leat_source *source;
    setenv("LEAT_FAKE_HDF5", how, 1);
    err.text[0] = 0;
    assert_true(leat_source_hdf5(&asked, &source, &err) < 0);
    assert_non_null(strstr(err.text, "latest.h5"));
    return err.text;
}

static void test_library_that_misbehaves(void **state)
{
    if (access(fake_library(), R_OK) < 0)
        skip();
    assert_non_null(strstr(said_of("crash", 0), "libhdf5 failed on it (signal 11)"));
    assert_non_null(strstr(said_of("exit", 0), "libhdf5 failed on it (status 3)"));
    assert_non_null(strstr(said_of("hang", 300), "within 0.3 s"));
    assert_non_null(strstr(said_of("leave", 0), "cut short"));
    assert_non_null(strstr(said_of("garbage", 0), "makes no sense"));
    assert_non_null(strstr(said_of("flood", 0), "more chunks in it than its size allows"));
    assert_non_null(strstr(said_of("memory", 0), "libhdf5 failed on it ("));
}

static void test_not_hdf5(void **state)
{
    struct leat_source *source;
    const char *name = "x";
    struct leat_hdf5 asked = {.path = "/proc/self/exe", .datasets = &name, .count = 1};
    assert_int_equal(leat_source_hdf5(&asked, &source, &err), -LEAT_E_FOREIGN);
    asked.count = 0;
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
        cmocka_unit_test(test_who_waits_unpacks_ahead),
        cmocka_unit_test(test_mutated_files),
        cmocka_unit_test(test_mutated_file_with_checksums),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_library_that_misbehaves),
        cmocka_unit_test(test_not_hdf5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
