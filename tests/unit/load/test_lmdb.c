/* test_lmdb.c: LMDB files as LMDB wrote them (tests/data/lmdb: byte k of value i is i + k), whole,
 * damaged in every place that holds the tree together, cut, and written to meanwhile. */
#include "samples.h"

#include "base/mem.h"
#include "base/path.h"
#include "load/source/lmdb/lmdb_tree.h"

#include <fcntl.h>
#include <sys/mman.h>

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

    source = open_source(file("small"), (struct leat_lmdb){0}); /* with all that is no sample */
    assert_int_equal(leat_source_count(source), 9);
    leat_source_unref(source);
}

static void test_deep(void **state)
{
    struct lmdb_tree tree;
    must(lmdb_tree_open(&tree, file("deep"), NULL, &err));
    assert_int_equal(tree.entries, 150);
    assert_true(tree.leaf_count > 8); /* more than a branch page holds */
    for (int64_t i = 0; i < tree.entries; i++) {
        struct lmdb_item item;
        char key[16];
        must(lmdb_tree_at(&tree, tree.file.bytes, i, &item, &err));
        snprintf(key, sizeof key, "%08d", (int)i);
        assert_int_equal(item.key_bytes, 488);
        assert_memory_equal(item.key, key, 8);
        assert_value(&(struct leat_span){item.value, (int64_t)item.value_bytes}, i, i % 13);
        int64_t number;
        must(lmdb_tree_find(&tree, item.key, item.key_bytes, &number, &err));
        assert_int_equal(number, i);
        must(lmdb_tree_find(&tree, item.key, item.key_bytes - 1, &number, &err));
        assert_int_equal(number, -1);
    }
    lmdb_tree_close(&tree);
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

/* A value that is not what its field is: a bad sample with path, key and reason. */
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

/* Opens and reads all: every byte must come from the file. 1: let through. */
static int read_damaged(const char *path, const char *db)
{
    struct lmdb_tree tree;
    int good = 1;
    err.text[0] = 0;
    if (lmdb_tree_open(&tree, path, db, &err) < 0) {
        assert_true(*err.text);
        return 0;
    }
    for (int64_t i = 0; i < tree.entries; i++) {
        struct lmdb_item item;
        err.text[0] = 0;
        const struct lmdb_leaf *leaf = lmdb_tree_leaf(&tree, i);
        lmdb_tree_fetch_node(&tree, tree.file.bytes, leaf, i);
        lmdb_tree_fetch_page(&tree, tree.file.bytes, leaf, i);
        if (lmdb_tree_item(&tree, tree.file.bytes, leaf, i, &item, &err) < 0) {
            assert_true(*err.text);
            good = 0;
            continue;
        }
        lmdb_tree_fetch_value(&tree, &item);
        const uint8_t *end = tree.file.base + tree.file.bytes;
        assert_true(item.key >= tree.file.base && item.key + item.key_bytes <= end);
        assert_true(item.value >= tree.file.base && item.value <= end &&
                    item.value_bytes <= (uint64_t)(end - item.value));
    }
    lmdb_tree_close(&tree);
    return good;
}

/* Headers, offsets and the nodes behind them, each byte in turn. */
static void damage(const char *name, const char *db)
{
    struct copy c = copy_of(name);
    static const uint8_t changes[] = {1, 0x10, 0x7f, 0x80, 0xff};
    size_t caught = 0, tried = 0;
    assert_true(read_damaged(c.path, db));
    for (size_t at = 0; at < c.count; at++) {
        size_t in_page = at % 4096, meta = at < 8192;
        if (in_page >= (meta ? 160 : 48) && in_page < 4096 - 96)
            continue;
        for (size_t k = 0; k < sizeof changes; k++) {
            char byte = (char)(c.bytes[at] ^ changes[k]);
            assert_int_equal(pwrite(c.fd, &byte, 1, (off_t)at), 1);
            caught += !read_damaged(c.path, db);
            tried++;
        }
        assert_int_equal(pwrite(c.fd, c.bytes + at, 1, (off_t)at), 1);
    }
    assert_true(tried > 200 && caught > tried / 50);
    copy_done(&c);
}

static void test_damaged(void **state)
{
    damage("small", NULL);
    damage("big", NULL);
    damage("named", "second");
    damage("deep", NULL);
}

/* Branch pages that lead back up, or to one leaf many times: refused, and soon. */
static void test_cycles(void **state)
{
    struct copy c = copy_of("deep");
    uint8_t *bytes = (uint8_t *)c.bytes;
    for (size_t page = 2; page < c.count / 4096; page++) {
        uint8_t *p = bytes + page * 4096;
        if (!(p[10] & 1))
            continue;
        uint64_t first = 0;
        for (size_t i = 16; i < (p[12] | (size_t)p[13] << 8); i += 2) {
            uint8_t *node = p + (p[i] | (size_t)p[i + 1] << 8);
            if (!first)
                memcpy(&first, node, 4);
            memcpy(node, &first, 4); /* all children are the first one */
        }
    }
    assert_int_equal(pwrite(c.fd, bytes, c.count, 0), c.count);
    assert_false(read_damaged(c.path, NULL));
    for (size_t page = 2; page < c.count / 4096; page++) {
        uint8_t *p = bytes + page * 4096;
        for (size_t i = 16; p[10] & 1 && i < (p[12] | (size_t)p[13] << 8); i += 2)
            memcpy(p + (p[i] | (size_t)p[i + 1] << 8), &(uint32_t){(uint32_t)page}, 4);
    }
    assert_int_equal(pwrite(c.fd, bytes, c.count, 0), c.count);
    assert_false(read_damaged(c.path, NULL));
    copy_done(&c);
}

static void put(struct copy *c, size_t at, uint64_t value, size_t bytes)
{
    assert_int_equal(pwrite(c->fd, &value, bytes, (off_t)at), bytes);
}

/* Where in the page the node lies that entry `number` of it has. */
static size_t node_of(const struct copy *c, size_t page, size_t number)
{
    uint16_t at;
    memcpy(&at, c->bytes + 4096 * page + 16 + 2 * number, sizeof at);
    return 4096 * page + at;
}

static size_t page_of_kind(const struct copy *c, int kind)
{
    size_t page = 2;
    while (c->bytes[4096 * page + 10] != kind)
        page++;
    return page;
}

static void assert_damaged(struct copy *c, const char *said)
{
    assert_false(read_damaged(c->path, NULL));
    assert_said(said);
    assert_int_equal(pwrite(c->fd, c->bytes, c->count, 0), c->count); /* whole again */
    assert_true(read_damaged(c->path, NULL));
}

/* Each check by its own sentence. */
static void test_sentences(void **state)
{
    struct copy c = copy_of("big");
    size_t leaf = page_of_kind(&c, 2), last = node_of(&c, leaf, 4);
    put(&c, last + 16, 999, 8); /* behind the header and a key of 8 bytes: the overflow page */
    assert_damaged(&c, "page 999 is named, but the file does not reach so far");
    put(&c, last + 16, (UINT64_C(1) << 52) + 3, 8); /* times the page size: page 3 */
    assert_damaged(&c, "does not reach so far");
    put(&c, last + 16, leaf, 8);
    assert_damaged(&c, "is another one than the page before it says");
    put(&c, last, 3 * 4096 - 15, 4); /* one byte more than three pages hold */
    assert_damaged(&c, "begins a value that is longer than its pages");
    put(&c, 4096 * leaf, leaf + 1, 8);
    assert_damaged(&c, "is another one than the page before it says");
    put(&c, 4096 * leaf + 12, 4098, 2);
    assert_damaged(&c, "has no entries that fit into it");
    put(&c, 4096 * leaf + 14, 4098, 2);
    assert_damaged(&c, "has no entries that fit into it");
    put(&c, 4096 * leaf + 12, 24, 2);
    assert_damaged(&c, "says that it has 5 entries, its pages have 4");
    copy_done(&c);
}

/* A branch page whose children are all itself, as deep as LMDB goes: 8^31 ways. */
static void test_runs_into_itself(void **state)
{
    struct copy c = copy_of("deep");
    uint64_t root;
    int newest = txnid_of(&c, 1) > txnid_of(&c, 0);
    size_t database = 4096 * (size_t)newest + 16 + 72;
    memcpy(&root, c.bytes + database + 40, sizeof root);
    for (size_t i = 0; i < 2; i++)
        put(&c, node_of(&c, root, i), root, 4);
    put(&c, database + 6, 32, 2);
    put(&c, 4096 * root + 12, 20, 2); /* two of them are enough */
    assert_damaged(&c, "is reached by more than one way");
    copy_done(&c);
}

/* The page has fewer entries than when the file was opened. */
static void test_shrinks(void **state)
{
    struct copy c = copy_of("small");
    struct leat_source *source = open_source(c.path, (struct leat_lmdb){0});
    struct leat_batch *batch;
    int64_t last = 8;
    put(&c, 4096 * page_of_kind(&c, 2) + 12, 20, 2);
    assert_int_equal(leat_source_read(source, &last, 1, NULL, &batch, &err), -LEAT_E_CORRUPT);
    assert_said("has fewer entries than when it was opened");
    leat_source_unref(source);
    copy_done(&c);
}

static struct copy *written;

/* A writer ends its transaction while the value is copied. */
static void *write_meanwhile(const struct source_request *request, uint64_t bytes)
{
    static uint8_t room[64];
    put(written, 144, 1000, 8);
    return room;
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
        .indices = &index, .count = 1, .places = places, .room = write_meanwhile};
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
        assert_int_equal(ftruncate(c.fd, (off_t)cut), 0);
        assert_false(read_damaged(c.path, NULL));
    }
    copy_done(&c);

    /* While it is open: what lies before the cut is not read either, as the metas may be gone. */
    c = copy_of("big");
    struct leat_source *source = open_source(c.path, (struct leat_lmdb){0});
    struct leat_batch *batch;
    int64_t last = 4, first = 0;
    assert_int_equal(ftruncate(c.fd, (off_t)c.count - 8192), 0);
    assert_int_equal(leat_source_read(source, &last, 1, NULL, &batch, &err), -LEAT_E_CORRUPT);
    assert_said("was cut short to");
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

/* One meta is enough, whichever it is. */
static void test_one_meta(void **state)
{
    for (int meta = 0; meta < 2; meta++) {
        struct copy c = copy_of("small");
        assert_int_equal(pwrite(c.fd, "gone", 4, 4096 * meta + 16), 4);
        int newest = txnid_of(&c, 1) > txnid_of(&c, 0);
        struct lmdb_tree tree;
        int failed = lmdb_tree_open(&tree, c.path, NULL, &err);
        assert_int_equal(failed, 0);
        assert_int_equal(tree.txnid, txnid_of(&c, !meta));
        assert_int_equal(tree.entries, newest == !meta ? 9 : 0);
        lmdb_tree_close(&tree);
        copy_done(&c);
    }
}

/* By a loader with threads: every sample once an epoch, with its own bytes. */
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
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_writer),
        cmocka_unit_test(test_one_meta),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_runs_into_itself),
        cmocka_unit_test(test_shrinks),
        cmocka_unit_test(test_writer_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
