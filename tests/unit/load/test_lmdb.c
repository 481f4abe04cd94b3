/* test_lmdb.c: LMDB files as LMDB wrote them (tests/data/lmdb: byte k of value i is i + k), whole,
 * cut short, and written to while they are read. */
#include "samples.h"

#include "base/mem.h"
#include "base/path.h"
#include "load/source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define assert_said(part)                                                                          \
    do {                                                                                           \
        if (!strstr(err.text, part))                                                               \
            fail_msg("\"%s\" does not say \"%s\"", err.text, part);                                \
    } while (0)

static const char *file(const char *name)
{
    static char path[512];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/lmdb/%s.mdb", data ? data : "tests/data", name);
    return path;
}

/* A copy of a file that may be written to; its path is that of the descriptor. */
struct copy {
    int fd;
    char *bytes;
    size_t count;
    char path[64];
};

static struct copy copy_of(const char *name)
{
    struct copy c;
    must(path_read_file(file(name), 1u << 20, &c.bytes, &c.count, &err));
    c.fd = memfd_create("lmdb", MFD_CLOEXEC);
    assert_true(c.fd >= 0);
    assert_int_equal(pwrite(c.fd, c.bytes, c.count, 0), c.count);
    snprintf(c.path, sizeof c.path, "/proc/self/fd/%d", c.fd);
    return c;
}

static void copy_done(struct copy *c)
{
    close(c->fd);
    mem_free(c->bytes);
}

static uint64_t txnid_of(const struct copy *c, int meta)
{
    uint64_t txnid;
    memcpy(&txnid, c->bytes + 4096 * meta + 144, sizeof txnid);
    return txnid;
}

static struct leat_source *open_source(const char *path, struct leat_lmdb asked)
{
    struct leat_source *source = NULL;
    asked.path = path;
    must(leat_source_lmdb(&asked, &source, &err));
    return source;
}

static struct leat_batch *read_all(struct leat_source *source)
{
    size_t count = (size_t)leat_source_count(source);
    int64_t *indices = malloc(count * sizeof *indices);
    struct leat_batch *batch = NULL;
    for (size_t i = 0; i < count; i++)
        indices[i] = (int64_t)i;
    must(leat_source_read(source, indices, count, NULL, &batch, &err));
    free(indices);
    return batch;
}

static void assert_value(const struct leat_span *span, int64_t i, int64_t length)
{
    assert_int_equal(span->items, length);
    for (int64_t k = 0; k < length; k++)
        assert_int_equal(((const uint8_t *)span->data)[k], (i + k) % 256);
}

static void test_small(void **state)
{
    static const struct leat_lmdb_key skip[] = {
        {"__len__",       7 },
        {"__keys__",      8 },
        {"00000003.note", 13},
        {"__len__",       7 }
    };
    struct leat_codec decimal = {.kind = LEAT_CODEC_DECIMAL};
    struct leat_source *source = open_source(
        file("small"), (struct leat_lmdb){.skip = skip, .skip_count = 4, .key = &decimal});
    assert_int_equal(leat_source_count(source), 7);
    assert_int_equal(leat_source_fields(source), 2);
    assert_string_equal(leat_source_field(source, 0)->name, "key");
    struct leat_batch *batch = read_all(source);
    for (int64_t i = 0; i < 7; i++) {
        assert_int_equal(((const int64_t *)batch->data[0])[i], i);
        assert_value((const struct leat_span *)batch->data[1] + i, i, 3 * i);
    }
    leat_batch_unref(batch);
    int64_t lengths[7];
    must(source->ops->lengths(source, 1, 0, 7, lengths, &err));
    for (int64_t i = 0; i < 7; i++)
        assert_int_equal(lengths[i], 3 * i);
    leat_source_unref(source);

    source =
        open_source(file("small"), (struct leat_lmdb){0}); /* with all keys that are not samples */
    assert_int_equal(leat_source_count(source), 9);
    leat_source_unref(source);
}

static void test_deep(void **state)
{
    struct leat_codec bytes = {.kind = LEAT_CODEC_BYTES};
    struct leat_source *source = open_source(file("deep"), (struct leat_lmdb){.key = &bytes});
    assert_int_equal(leat_source_count(source), 150);
    struct leat_batch *batch = read_all(source);
    for (int64_t i = 0; i < 150; i++) {
        const struct leat_span *written_key = (const struct leat_span *)batch->data[0] + i;
        char key[16];
        snprintf(key, sizeof key, "%08d", (int)i);
        assert_int_equal(written_key->items, 488);
        assert_memory_equal(written_key->data, key, 8);
        assert_value((const struct leat_span *)batch->data[1] + i, i, i % 13);
    }
    leat_batch_unref(batch);
    leat_source_unref(source);
}

static void test_big(void **state)
{
    struct leat_source *source = open_source(file("big"), (struct leat_lmdb){0});
    struct leat_batch *batch = read_all(source);
    for (int64_t i = 0; i < 5; i++)
        assert_value((const struct leat_span *)batch->data[0] + i, i, 1 + 2800 * i);
    leat_batch_unref(batch);
    leat_source_unref(source);
}

static void test_named(void **state)
{
    struct leat_codec array = {
        .kind = LEAT_CODEC_ARRAY, .dtype = LEAT_UINT8, .dims = 1, .shape = {4}};
    struct leat_source *source =
        open_source(file("named"), (struct leat_lmdb){.db = "second", .value = array});
    assert_int_equal(leat_source_count(source), 4);
    struct leat_batch *batch = read_all(source);
    for (int i = 0; i < 16; i++)
        assert_int_equal(((const uint8_t *)batch->data[0])[i], 100 + i / 4 + i % 4);
    leat_batch_unref(batch);
    leat_source_unref(source);

    source = open_source(file("integers"), (struct leat_lmdb){.db = "numbered", .value = array});
    assert_int_equal(leat_source_count(source), 300);
    batch = read_all(source);
    assert_int_equal(((const uint8_t *)batch->data[0])[4 * 299], 299 % 256);
    leat_batch_unref(batch);
    leat_source_unref(source);
}

static void test_refused(void **state)
{
    static const struct {
        const char *name, *db, *said;
    } cases[] = {
        {"duplicates", "pairs",    "several values for a key"        },
        {"duplicates", NULL,       "is a named database, not a value"},
        {"named",      "third",    "has no database named \"third\"" },
        {"small",      "00000001", "is a key, not a database"        },
        {"empty",      NULL,       "has no values in it"             },
        {"missing",    NULL,       "No such file"                    },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct leat_source *source;
        struct leat_lmdb asked = {.path = file(cases[i].name), .db = cases[i].db};
        assert_true(leat_source_lmdb(&asked, &source, &err) < 0);
        assert_said(cases[i].said);
    }
    struct leat_source *source;
    struct leat_lmdb asked = {.path = file("small"), .value = {.kind = LEAT_CODEC_NPY}};
    assert_true(leat_source_lmdb(&asked, &source, &err) < 0);
    assert_said("is not a .npy file");
}

/* A value that does not fit its field: a bad sample with path, key and reason. */
static void test_bad_value(void **state)
{
    struct leat_codec array = {
        .kind = LEAT_CODEC_ARRAY, .dtype = LEAT_UINT8, .dims = 1, .shape = {3}};
    struct leat_source *source = open_source(file("small"), (struct leat_lmdb){.value = array});
    struct leat_batch *batch;
    int64_t good = 1, bad = 2;
    must(leat_source_read(source, &good, 1, NULL, &batch, &err));
    leat_batch_unref(batch);
    assert_int_equal(leat_source_read(source, &bad, 1, NULL, &batch, &err), -LEAT_E_CORRUPT);
    assert_said("small.mdb, key \"00000002\": the value has 6 bytes, not the 3 of uint8[3].");
    leat_source_unref(source);
}

static void put(struct copy *c, size_t at, uint64_t value, size_t bytes)
{
    assert_int_equal(pwrite(c->fd, &value, bytes, (off_t)at), bytes);
}

static struct copy *written;

/* A writer ends its transaction while the value is copied. */
static void *write_meanwhile(const struct source_request *request, uint64_t bytes)
{
    static uint8_t memory[64];
    put(written, 144, 1000, 8);
    return memory;
}

static void not_bad(struct source_report *report, size_t place, int code, const char *text)
{
    fail_msg("%s", text);
}

static void test_writer_meanwhile(void **state)
{
    struct copy c = copy_of("small");
    struct leat_source *source = open_source(c.path, (struct leat_lmdb){0});
    struct leat_span span;
    uint8_t *places[] = {(uint8_t *)&span};
    int64_t index = 2;
    struct source_request request = {
        .indices = &index, .count = 1, .places = places, .alloc = write_meanwhile};
    struct source_report report = {not_bad};
    written = &c;
    assert_int_equal(source->ops->read(source, &request, &report, &err), -LEAT_E_CORRUPT);
    assert_said("was written to");
    leat_source_unref(source);
    copy_done(&c);
}

static void test_cut(void **state)
{
    struct copy c = copy_of("big");
    for (size_t cut = 0; cut < c.count; cut += 512) {
        struct leat_source *source;
        struct leat_lmdb asked = {.path = c.path};
        err.text[0] = 0;
        assert_int_equal(ftruncate(c.fd, (off_t)cut), 0);
        assert_true(leat_source_lmdb(&asked, &source, &err) < 0);
        assert_non_null(strstr(err.text, c.path));
    }
    copy_done(&c);

    /* While it is open: what lies before the cut is not read either. */
    c = copy_of("big");
    struct leat_source *source = open_source(c.path, (struct leat_lmdb){0});
    struct leat_batch *batch;
    int64_t last = 4, first = 0;
    assert_int_equal(ftruncate(c.fd, (off_t)c.count - 8192), 0);
    assert_int_equal(leat_source_read(source, &last, 1, NULL, &batch, &err), -LEAT_E_CORRUPT);
    assert_said("was cut short");
    assert_int_equal(ftruncate(c.fd, 100), 0);
    assert_true(leat_source_read(source, &first, 1, NULL, &batch, &err) < 0);
    leat_source_unref(source);
    copy_done(&c);
}

/* A writer that ends a transaction writes a larger txnid into one of the metas. */
static void test_writer(void **state)
{
    struct copy c = copy_of("small");
    struct leat_source *source = open_source(c.path, (struct leat_lmdb){0});
    struct leat_batch *batch;
    int64_t index = 0;
    uint64_t newest = txnid_of(&c, 0) > txnid_of(&c, 1) ? txnid_of(&c, 0) : txnid_of(&c, 1);
    must(leat_source_read(source, &index, 1, NULL, &batch, &err));
    leat_batch_unref(batch);
    for (int meta = 0; meta < 2; meta++) {
        uint64_t txnid = newest + 1, before = txnid_of(&c, meta);
        assert_int_equal(pwrite(c.fd, &txnid, 8, 4096 * meta + 144), 8);
        assert_int_equal(leat_source_read(source, &index, 1, NULL, &batch, &err), -LEAT_E_CORRUPT);
        assert_said("was written to");
        assert_int_equal(pwrite(c.fd, &before, 8, 4096 * meta + 144), 8);
    }
    must(leat_source_read(source, &index, 1, NULL, &batch, &err));
    leat_batch_unref(batch);
    leat_source_unref(source);
    copy_done(&c);
}

/* By a loader with threads: every sample once per epoch, with its own bytes. */
static void test_threads(void **state)
{
    struct leat_source *source =
        open_source(file("integers"),
                    (struct leat_lmdb){.db = "numbered", .value = {.kind = LEAT_CODEC_BYTES}});
    struct leat_loader *l =
        load(source,
             (struct leat_loader_options){.batch_size = 7, .threads = 3, .order = LEAT_ORDER_FULL});
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        int seen[300] = {0};
        must(leat_loader_start(l, epoch, &err));
        for (struct leat_batch *batch; (batch = next(l)); leat_batch_unref(batch))
            for (int64_t i = 0; i < batch->samples; i++) {
                assert_value((const struct leat_span *)batch->data[0] + i, batch->indices[i], 4);
                seen[batch->indices[i]]++;
            }
        for (int i = 0; i < 300; i++)
            assert_int_equal(seen[i], 1);
    }
    leat_loader_close(l);
    leat_source_unref(source);
}

/* Two sources of one file, one of them closed, and a child that reads and closes what it got. */
static void test_shared_and_forked(void **state)
{
    struct leat_source *source = open_source(file("big"), (struct leat_lmdb){0});
    struct leat_source *other = open_source(file("big"), (struct leat_lmdb){0});
    leat_source_unref(other);
    pid_t child = fork();
    struct leat_batch *batch = read_all(source);
    for (int64_t i = 0; i < 5; i++)
        assert_value((const struct leat_span *)batch->data[0] + i, i, 1 + 2800 * i);
    leat_batch_unref(batch);
    leat_source_unref(source);
    if (!child)
        _exit(0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The n-th allocation fails, for every n: nothing leaks. */
static void test_no_memory(void **state)
{
    struct leat_codec key = {.kind = LEAT_CODEC_BYTES};
    static const struct leat_lmdb_key skip[] = {
        {"__len__", 7}
    };
    struct leat_lmdb asked = {.path = file("deep"), .key = &key, .skip = skip, .skip_count = 1};
    for (unsigned long n = 1;; n++) {
        struct leat_source *source = NULL;
        mem_fail_at(n);
        int failed = leat_source_lmdb(&asked, &source, &err);
        mem_fail_at(0);
        if (!failed) {
            leat_source_unref(source);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(failed, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_value),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_shared_and_forked),
        cmocka_unit_test(test_writer_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
