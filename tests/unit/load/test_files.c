/* test_files.c: one file per sample: each way a file is read, and the errors for bad ones. */
#include "samples.h"

#include "base/mem.h"
#include "base/path.h"

#include <fcntl.h>
#include <sys/stat.h>

#define FILES 5

static char folder[32];
static char paths[FILES][64];
static const char *list[FILES];

#define assert_said(part)                                                                          \
    do {                                                                                           \
        if (!strstr(err.text, part))                                                               \
            fail_msg("\"%s\" does not say \"%s\"", err.text, part);                                \
    } while (0)

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/leat-files-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < FILES; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        list[i] = paths[i];
    }
    return 0;
}

static int remove_folder(void **state)
{
    for (int i = 0; i < FILES; i++)
        unlink(paths[i]);
    return rmdir(folder);
}

static void write_file(int i, const void *bytes, size_t count)
{
    int fd = open(paths[i], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

/* Copies a file of tests/data to number i. */
static void take_file(int i, const char *name)
{
    char path[512], *text;
    size_t bytes;
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s", data ? data : "tests/data", name);
    must(path_read_file(path, 1u << 20, &text, &bytes, &err));
    write_file(i, text, bytes);
    mem_free(text);
}

static struct leat_source *open_files(struct leat_codec codec, const int64_t *labels)
{
    struct leat_source *source = NULL;
    struct leat_files files = {.paths = list, .count = FILES, .labels = labels, .value = codec};
    must(leat_source_files(&files, &source, &err));
    return source;
}

static struct leat_batch *read_all(struct leat_source *source)
{
    int64_t indices[FILES] = {4, 0, 3, 1, 2};
    struct leat_batch *batch = NULL;
    must(leat_source_read(source, indices, FILES, NULL, &batch, &err));
    return batch;
}

static int read_one(struct leat_source *source, int64_t index)
{
    struct leat_batch *batch = NULL;
    err.text[0] = 0;
    int failed = leat_source_read(source, &index, 1, NULL, &batch, &err);
    leat_batch_unref(batch);
    return failed;
}

static void test_bytes_and_labels(void **state)
{
    static const int64_t labels[FILES] = {10, 11, 12, 13, 14}, order[FILES] = {4, 0, 3, 1, 2};
    for (int i = 0; i < FILES; i++)
        write_file(i, "abcdefg", (size_t)i); /* the first one is empty */
    struct leat_source *source = open_files((struct leat_codec){.kind = LEAT_CODEC_BYTES}, labels);
    struct leat_batch *batch = read_all(source);
    const struct leat_span *spans = batch->data[0];
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(spans[i].items, order[i]);
        assert_memory_equal(spans[i].data, "abcdefg", (size_t)order[i]);
        assert_int_equal(((const int64_t *)batch->data[1])[i], 10 + order[i]);
    }
    leat_batch_unref(batch);
    leat_source_unref(source);
}

static void test_array(void **state)
{
    struct leat_codec codec = {
        .kind = LEAT_CODEC_ARRAY, .dtype = LEAT_INT16, .dims = 1, .shape = {3}};
    for (int16_t i = 0; i < FILES; i++)
        write_file(i, (int16_t[]){i, (int16_t)(i + 1), (int16_t)(i + 2)}, 6);
    struct leat_source *source = open_files(codec, NULL);
    struct leat_batch *batch = read_all(source);
    const int16_t *rows = batch->data[0];
    assert_int_equal(rows[0], 4);
    assert_int_equal(rows[2], 6);
    assert_int_equal(rows[14], 4);
    leat_batch_unref(batch);

    write_file(1, "short", 5);
    assert_int_equal(read_one(source, 1), -LEAT_E_CORRUPT);
    assert_said("/1: the value has 5 bytes, not the 6 of int16[3].");
    unlink(paths[1]);
    assert_int_equal(read_one(source, 1), -ENOENT);
    assert_said("/1: No such file");
    assert_int_equal(mkdir(paths[1], 0700), 0);
    assert_true(read_one(source, 1) < 0);
    assert_said("is not a regular file");
    rmdir(paths[1]);
    assert_int_equal(mkfifo(paths[1], 0600), 0);
    assert_true(read_one(source, 1) < 0); /* and does not wait for a writer */
    assert_said("is not a regular file");
    unlink(paths[1]);
    assert_int_equal(read_one(source, 2), 0);
    leat_source_unref(source);
}

/* A .npy like the first one, and others of the same type and shape with another layout. */
static void test_npy(void **state)
{
    static const char *const names[FILES] = {"npy/i4.npy", "npy/i4.npy", "npy/version_2.npy",
                                             "npy/fortran.npy", "npy/big_i4.npy"};
    for (int variable = 0; variable < 2; variable++) {
        for (int i = 0; i < FILES; i++)
            take_file(i, names[i]);
        struct leat_source *source =
            open_files((struct leat_codec){.kind = LEAT_CODEC_NPY, .variable = variable}, NULL);
        assert_string_equal(leat_source_decode(source), "value from .npy");
        struct leat_batch *batch = read_all(source);
        for (int i = 0; i < FILES; i++) {
            const int32_t *row = variable ? ((const struct leat_span *)batch->data[0])[i].data
                                          : (const int32_t *)batch->data[0] + 24 * i;
            for (int k = 0; k < 24; k++)
                assert_int_equal(row[k], k);
        }
        leat_batch_unref(batch);
        take_file(2, "npy/f4.npy");
        assert_int_equal(read_one(source, 2), -LEAT_E_CORRUPT);
        assert_said("/2: the value is float32[6,4]");
        assert_int_equal(truncate(paths[0], 150), 0);
        assert_int_equal(read_one(source, 0), -LEAT_E_CORRUPT);
        assert_said("/0: the value is cut short");
        leat_source_unref(source);
    }
}

static void test_decimal(void **state)
{
    for (int i = 0; i < FILES; i++)
        write_file(i, "17\n", 3);
    struct leat_source *source = open_files((struct leat_codec){.kind = LEAT_CODEC_DECIMAL}, NULL);
    struct leat_batch *batch = read_all(source);
    assert_int_equal(((const int64_t *)batch->data[0])[4], 17);
    leat_batch_unref(batch);
    /* A sparse file can claim any size; it is not read. */
    assert_int_equal(truncate(paths[3], INT64_C(1) << 40), 0);
    assert_int_equal(read_one(source, 3), -LEAT_E_CORRUPT);
    assert_said("far more than its sample");
    leat_source_unref(source);
}

static void test_first_file(void **state)
{
    struct leat_source *source;
    struct leat_files files = {.paths = list, .count = 1, .value = {.kind = LEAT_CODEC_NPY}};
    write_file(0, "nothing", 7);
    assert_int_equal(leat_source_files(&files, &source, &err), -LEAT_E_FOREIGN);
    assert_said("/0 is not a .npy file");
    unlink(paths[0]);
    assert_int_equal(leat_source_files(&files, &source, &err), -ENOENT);
    files.count = 0;
    assert_int_equal(leat_source_files(&files, &source, &err), -LEAT_E_USAGE);
}

static void test_no_memory(void **state)
{
    static const int64_t labels[FILES];
    struct leat_files files = {
        .paths = list, .count = FILES, .labels = labels, .value = {.kind = LEAT_CODEC_NPY}};
    take_file(0, "npy/i4.npy");
    for (unsigned long n = 1;; n++) {
        struct leat_source *source = NULL;
        mem_fail_at(n);
        int failed = leat_source_files(&files, &source, &err);
        mem_fail_at(0);
        if (!failed) {
            leat_source_unref(source);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(failed, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_and_labels),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_decimal),
        cmocka_unit_test(test_first_file),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
