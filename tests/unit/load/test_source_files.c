/* test_source_files.c: .npy files as NumPy wrote them (tests/data/npy), files of tokens, and errors
 * for wrong ones. */
#include "samples.h"

#include "load/source/array/mapped_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static char folder[32];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/leat-src-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return rmdir(folder); /* fails where a test left a file */
}

static const char *numpy_file(const char *name)
{
    static char path[512];
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/npy/%s.npy", data ? data : "tests/data", name);
    return path;
}

static struct leat_source *open_npy(const char *name)
{
    const char *path = numpy_file(name);
    struct leat_source *source = NULL;
    must(leat_source_npy(&path, NULL, 1, &source, &err));
    return source;
}

/* All rows of a source of one field, in order, in one batch; free() it. */
static void *read_rows(struct leat_source *source, int64_t *ret_samples)
{
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = leat_source_count(source) + 1});
    must(leat_loader_start(l, 0, &err));
    struct leat_batch *batch = next(l);
    assert_non_null(batch);
    size_t bytes = (size_t)batch->samples * leat_source_field(source, 0)->row_bytes;
    void *copy = malloc(bytes);
    memcpy(copy, batch->data[0], bytes);
    *ret_samples = batch->samples;
    leat_batch_unref(batch);
    leat_loader_close(l);
    return copy;
}

static double half(uint16_t bits) /* of the small integers that the files hold */
{
    int exponent = (bits >> 10) & 31;
    double value = exponent ? 1 + (bits & 1023) / 1024.0 : (bits & 1023) / 1024.0;
    for (int e = exponent ? exponent : 1; e < 15; e++)
        value /= 2;
    for (int e = 15; e < exponent; e++)
        value *= 2;
    return value;
}

static double item(const void *rows, enum leat_dtype dtype, int64_t i)
{
    switch (dtype) {
    case LEAT_BOOL:
    case LEAT_UINT8: return ((const uint8_t *)rows)[i];
    case LEAT_INT8: return ((const int8_t *)rows)[i];
    case LEAT_INT16: return ((const int16_t *)rows)[i];
    case LEAT_INT32: return ((const int32_t *)rows)[i];
    case LEAT_INT64: return (double)((const int64_t *)rows)[i];
    case LEAT_UINT16: return ((const uint16_t *)rows)[i];
    case LEAT_UINT32: return ((const uint32_t *)rows)[i];
    case LEAT_UINT64: return (double)((const uint64_t *)rows)[i];
    case LEAT_FLOAT16: return half(((const uint16_t *)rows)[i]);
    case LEAT_FLOAT32: return ((const float *)rows)[i];
    case LEAT_FLOAT64: return ((const double *)rows)[i];
    case LEAT_COMPLEX64: return ((const float *)rows)[2 * i];
    case LEAT_COMPLEX128: return ((const double *)rows)[2 * i];
    default: return -1;
    }
}

static void every_type_is_read(void **state)
{
    static const struct {
        const char *name;
        enum leat_dtype dtype;
        uint32_t dims;
    } files[] = {
        {"i1",          LEAT_INT8,       1},
        {"i2",          LEAT_INT16,      1},
        {"i4",          LEAT_INT32,      1},
        {"i8",          LEAT_INT64,      1},
        {"u1",          LEAT_UINT8,      1},
        {"u2",          LEAT_UINT16,     1},
        {"u4",          LEAT_UINT32,     1},
        {"u8",          LEAT_UINT64,     1},
        {"f2",          LEAT_FLOAT16,    1},
        {"f4",          LEAT_FLOAT32,    1},
        {"f8",          LEAT_FLOAT64,    1},
        {"c8",          LEAT_COMPLEX64,  1},
        {"c16",         LEAT_COMPLEX128, 1},
        {"big_i2",      LEAT_INT16,      1},
        {"big_i4",      LEAT_INT32,      1},
        {"big_u8",      LEAT_UINT64,     1},
        {"big_f4",      LEAT_FLOAT32,    1},
        {"big_f8",      LEAT_FLOAT64,    1},
        {"big_c8",      LEAT_COMPLEX64,  1},
        {"big_c16",     LEAT_COMPLEX128, 1},
        {"fortran",     LEAT_INT32,      1},
        {"fortran_3d",  LEAT_INT32,      2},
        {"fortran_big", LEAT_INT32,      1},
        {"version_1",   LEAT_INT32,      1},
        {"version_2",   LEAT_INT32,      1},
        {"version_3",   LEAT_INT32,      1},
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct leat_source *source = open_npy(files[f].name);
        const struct leat_field *field = leat_source_field(source, 0);
        int64_t samples;
        assert_int_equal(field->dtype, files[f].dtype);
        assert_int_equal(field->dims, files[f].dims);
        assert_string_equal(field->name, files[f].name);
        assert_string_equal(field->descr, "");
        void *rows = read_rows(source, &samples);
        assert_int_equal(samples, 6);
        for (int64_t i = 0; i < 24; i++)
            if (item(rows, field->dtype, i) != (double)i)
                fail_msg("%s: item %d is %g", files[f].name, (int)i, item(rows, field->dtype, i));
        free(rows);
        leat_source_unref(source);
    }
}

static void raw_items_keep_their_description(void **state)
{
    static const struct {
        const char *name, *descr;
        uint32_t bytes;
    } files[] = {
        {"structured", "[('a', '<i4'), ('b', [('c', '<f8'), ('d', '|u1')], (2,))]", 22},
        {"text",       "'<U2'",                                                     8 },
        {"dates",      "'<M8[D]'",                                                  8 },
    };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct leat_source *source = open_npy(files[f].name);
        const struct leat_field *field = leat_source_field(source, 0);
        int64_t samples;
        assert_int_equal(field->dtype, LEAT_RAW);
        assert_string_equal(field->descr, files[f].descr);
        assert_int_equal(field->item_bytes, files[f].bytes);
        uint8_t *rows = read_rows(source, &samples);
        assert_int_equal(samples, 6);
        for (int i = 0; i < 6 && f != 1; i++)
            assert_int_equal(rows[(uint32_t)i * files[f].bytes], i);
        assert_true(f != 1 || (rows[0] == 't' && rows[8 + 4] == '1'));
        free(rows);
        leat_source_unref(source);
    }
}

static void several_files_are_fields(void **state)
{
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", numpy_file("f4"));
    snprintf(second, sizeof second, "%s", numpy_file("flat"));
    const char *paths[] = {first, second}, *names[] = {"x", "y"};
    struct leat_source *source;
    must(leat_source_npy(paths, names, 2, &source, &err));
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = 4, .order = LEAT_ORDER_FULL});
    struct leat_batch *batch;
    must(leat_loader_start(l, 0, &err));
    while ((batch = next(l))) {
        for (int64_t i = 0; i < batch->samples; i++)
            assert_true(((float *)batch->data[0])[i * 4] == 4 * ((int64_t *)batch->data[1])[i]);
        leat_batch_unref(batch);
    }
    leat_loader_close(l);
    assert_string_equal(leat_source_field(source, 1)->name, "y");
    leat_source_unref(source);
    snprintf(second, sizeof second, "%s", numpy_file("empty"));
    assert_int_equal(leat_source_npy(paths, names, 2, &source, &err), -LEAT_E_USAGE);
    assert_non_null(strstr(err.text, "0 samples"));
}

static void wrong_files_are_refused(void **state)
{
    static const struct {
        const char *name;
        int code;
        const char *say;
    } files[] = {
        {"objects",  -LEAT_E_USAGE, "Python objects"       },
        {"scalar",   -LEAT_E_USAGE, "single item"          },
        {"no_bytes", -LEAT_E_USAGE, "without a single byte"},
        {"absent",   -ENOENT,       "absent"               },
    };
    struct leat_source *source;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const char *path = numpy_file(files[f].name);
        assert_int_equal(leat_source_npy(&path, NULL, 1, &source, &err), files[f].code);
        assert_non_null(strstr(err.text, files[f].say));
        assert_non_null(strstr(err.text, path));
    }
    const char *path = folder;
    assert_int_equal(leat_source_npy(&path, NULL, 1, &source, &err), -LEAT_E_FOREIGN);
    char pipe_path[64];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    mkfifo(pipe_path, 0600);
    path = pipe_path;
    assert_int_equal(leat_source_npy(&path, NULL, 1, &source, &err), -LEAT_E_FOREIGN);
    unlink(pipe_path);
}

/* A header written by the test, followed by `data_bytes` zeros. */
static const char *write_npy(const char *dictionary, size_t data_bytes)
{
    static char path[64];
    char zeros[4096] = {0};
    uint16_t length = (uint16_t)strlen(dictionary);
    snprintf(path, sizeof path, "%s/made.npy", folder);
    FILE *file = fopen(path, "wb");
    fwrite("\x93NUMPY\1\0", 1, 8, file);
    fwrite(&length, 2, 1, file);
    fwrite(dictionary, 1, length, file);
    fwrite(zeros, 1, data_bytes, file);
    fclose(file);
    return path;
}

static void hostile_headers_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4)} x",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (10,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (10,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 0, 9223372036854775807, 2, 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1025,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [10]}",
        "{'descr': '<q4', 'fortran_order': False, 'shape': (10,)}",
        "{'descr': '<f99999999999', 'fortran_order': False, 'shape': (10,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (10,)}",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (10,)}",
        "{'descr': [('a', '<f4', (4294967296, 4294967296, 4294967296))], 'fortran_order': False, "
        "'shape': (1,)}",
        "{'descr': [[[[[[[[[[[[[[[[[[[[[[[[", /* nested without end */
        "{'descr': __import__('os'), 'fortran_order': False, 'shape': (10,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct leat_source *source = NULL;
        const char *path = write_npy(wrong[i], 4096);
        err.text[0] = 0;
        if (leat_source_npy(&path, NULL, 1, &source, &err) == 0)
            fail_msg("taken: %s", wrong[i]);
        assert_non_null(strstr(err.text, path));
        unlink(path);
    }
    struct leat_source *source = NULL; /* the same file, with the right size */
    const char *path =
        write_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1024,), }\n", 4096);
    must(leat_source_npy(&path, NULL, 1, &source, &err));
    leat_source_unref(source);
    unlink(path);
}

static void a_file_cut_short_gives_bad_samples(void **state)
{
    for (int fortran = 0; fortran < 2; fortran++) {
        const char *path =
            write_npy(fortran ? "{'descr': '|u1', 'fortran_order': True, 'shape': (100, 10), }"
                              : "{'descr': '|u1', 'fortran_order': False, 'shape': (100, 10), }",
                      1000);
        struct leat_source *source;
        must(leat_source_npy(&path, NULL, 1, &source, &err));
        struct stat info;
        stat(path, &info);
        assert_int_equal(truncate(path, info.st_size - 55), 0);
        struct leat_loader *l = load(
            source, (struct leat_loader_options){.batch_size = 10, .on_error = LEAT_ERROR_SKIP});
        struct leat_batch *batch;
        int64_t samples = 0;
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            samples += batch->samples;
            leat_batch_unref(batch);
        }
        /* C order: the last 6 rows. Fortran order: the last 55 rows' last items. */
        assert_int_equal(samples, fortran ? 45 : 94);
        struct leat_loader_error errors[100];
        assert_int_equal(leat_loader_errors(l, 0, errors, 100), fortran ? 55 : 6);
        assert_non_null(strstr(errors[0].text, "cut short"));
        leat_loader_close(l);
        leat_source_unref(source);
        unlink(path);
    }
}

/* cmocka installs a handler of its own for each test. */
static struct sigaction leats_handler;

static void exit_41(int number)
{
    _exit(41);
}

struct cutter {
    const char *path;
    long after_us;
};

static void *cut(void *context)
{
    const struct cutter *c = context;
    nanosleep(&(struct timespec){0, c->after_us * 1000}, NULL);
    assert_int_equal(truncate(c->path, 0), 0);
    return NULL;
}

enum { ROWS = 16, ROW_BYTES = 1 << 20 };

/* ROWS rows of `value`. */
static const char *write_large(int value)
{
    static char row[ROW_BYTES];
    const char *path =
        write_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (16, 1048576), }", 0);
    memset(row, value, sizeof row);
    FILE *file = fopen(path, "ab");
    for (int i = 0; i < ROWS; i++)
        assert_int_equal(fwrite(row, 1, sizeof row, file), sizeof row);
    fclose(file);
    return path;
}

static void assert_all(const struct leat_batch *batch, char value)
{
    const char *data = batch->data[0];
    size_t bytes = (size_t)batch->samples * ROW_BYTES;
    assert_true(data[0] == value && memcmp(data, data + 1, bytes - 1) == 0);
}

/* Reads all rows until an error; what is read before must be right. */
static void read_until_cut(struct leat_source *source)
{
    int64_t indices[ROWS];
    struct leat_batch *batch;
    for (int64_t i = 0; i < ROWS; i++)
        indices[i] = ROWS - 1 - i; /* the end first */
    while (leat_source_read(source, indices, ROWS, NULL, &batch, &err) == 0) {
        assert_all(batch, 0x5a);
        leat_batch_unref(batch);
    }
}

/* The same, in the threads of a loader. */
static void load_until_cut(struct leat_source *source)
{
    struct leat_loader *l =
        load(source, (struct leat_loader_options){.batch_size = 4, .threads = 2, .ahead = 4});
    struct leat_batch *batch;
    int got = 1;
    for (uint64_t epoch = 0; got >= 0; epoch++) {
        must(leat_loader_start(l, epoch, &err));
        while ((got = leat_loader_next(l, -1, &batch, &err)) > 0) {
            assert_all(batch, 0x5a);
            leat_batch_unref(batch);
        }
    }
    leat_loader_close(l);
}

static void a_file_cut_while_it_is_read(void **state)
{
    sigaction(SIGBUS, &leats_handler, NULL);
    for (int round = 0; round < 60; round++) {
        const char *path = write_large(0x5a);
        struct leat_source *source;
        must(leat_source_npy(&path, NULL, 1, &source, &err));
        struct cutter cutter = {path, 100 + 50 * round};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cut, &cutter), 0);
        (round % 2 ? load_until_cut : read_until_cut)(source);
        assert_non_null(strstr(err.text, "was cut short to"));
        pthread_join(thread, NULL);
        leat_source_unref(source);
        unlink(path);
    }
}

/* A SIGBUS that is not of a mapped file goes to the handler of the program. */
static void another_bus_error_is_the_programs(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        sigaction(SIGBUS, &leats_handler, NULL);
        volatile char *empty = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memfd_create("empty", 0), 0);
        _exit(empty[0]);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 41);
}

/* ---- tokens -----------------------------------------------------------------------------------
 */
static const char *write_tokens(int bytes, int count)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < count; i++) {
        int64_t token = bytes == 2 ? i ^ 0x8000 : i;
        fwrite(&token, (size_t)bytes, 1, file); /* little-endian */
    }
    fclose(file);
    return path;
}

static void tokens_are_widened(void **state)
{
    static const struct {
        enum leat_dtype dtype, out;
        int bytes;
    } kinds[] = {
        {LEAT_UINT16, LEAT_INT64, 2},
        {LEAT_UINT32, LEAT_INT64, 4},
        {LEAT_INT32,  LEAT_INT64, 4},
        {LEAT_UINT16, LEAT_INT32, 2},
        {LEAT_INT64,  LEAT_INT64, 8},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct leat_tokens asked = {.path = write_tokens(kinds[k].bytes, 1000),
                                    .dtype = kinds[k].dtype,
                                    .out = kinds[k].out,
                                    .length = 33,
                                    .stride = 10};
        struct leat_source *source;
        int64_t samples;
        must(leat_source_tokens(&asked, &source, &err));
        assert_int_equal(leat_source_count(source), (1000 - 33) / 10 + 1);
        void *rows = read_rows(source, &samples);
        for (int64_t i = 0; i < samples; i++)
            for (int64_t t = 0; t < 33; t++) {
                int64_t expected = i * 10 + t;
                expected ^= kinds[k].bytes == 2 ? 0x8000 : 0;
                assert_true(item(rows, kinds[k].out, i * 33 + t) == (double)expected);
            }
        free(rows);
        leat_source_unref(source);
        unlink(asked.path);
    }
}

static void wrong_tokens_are_refused(void **state)
{
    struct leat_source *source;
    struct leat_tokens asked = {
        .path = write_tokens(2, 99), .dtype = LEAT_UINT16, .out = LEAT_INT64, .length = 10};
    struct leat_tokens wrong = asked;
    wrong.length = 100;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE);
    wrong = asked, wrong.length = 0;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE);
    wrong = asked, wrong.stride = -1;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE);
    wrong = asked, wrong.dtype = LEAT_FLOAT32;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE);
    wrong = asked, wrong.dtype = LEAT_UINT32; /* 198 bytes are no multiple of 4 */
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_CORRUPT);
    wrong = asked, wrong.out = LEAT_INT32, wrong.dtype = LEAT_UINT32, wrong.offset_bytes = 2;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE); /* do not fit */
    wrong = asked, wrong.offset_bytes = 1000;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_USAGE);
    wrong = asked, wrong.index_path = asked.path;
    assert_int_equal(leat_source_tokens(&wrong, &source, &err), -LEAT_E_FOREIGN);
    unlink(asked.path);
}

static const char *write_index(uint8_t type, uint64_t n, int64_t shift)
{
    static char path[64];
    uint64_t version = 1, documents = 0;
    snprintf(path, sizeof path, "%s/tokens.idx", folder);
    FILE *file = fopen(path, "wb");
    fwrite("MMIDIDX\0\0", 1, 9, file);
    fwrite(&version, 8, 1, file);
    fwrite(&type, 1, 1, file);
    fwrite(&n, 8, 1, file);
    fwrite(&documents, 8, 1, file);
    for (int32_t i = 0, length = 20; i < 5; i++)
        fwrite(&length, 4, 1, file);
    for (int64_t i = 0, at = 0; i < 5; i++, at += 40 + shift)
        fwrite(&at, 8, 1, file);
    fclose(file);
    return path;
}

static void megatron_index_gives_type_and_extent(void **state)
{
    struct leat_source *source;
    struct leat_tokens asked = {.path = write_tokens(2, 130), .out = LEAT_INT64, .length = 10};
    asked.index_path = write_index(8, 5, 0); /* uint16; 100 of the 130 tokens */
    must(leat_source_tokens(&asked, &source, &err));
    assert_int_equal(leat_source_count(source), 10);
    leat_source_unref(source);
    write_index(8, 5, 2); /* a gap */
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_CORRUPT);
    write_index(8, 6, 0); /* more sequences than there are */
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_CORRUPT);
    write_index(8, UINT64_MAX / 4, 0);
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_CORRUPT);
    write_index(7, 5, 0); /* float32 */
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_USAGE);
    write_index(200, 5, 0);
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_USAGE);
    write_tokens(2, 99); /* fewer than the index lists */
    write_index(8, 5, 0);
    assert_int_equal(leat_source_tokens(&asked, &source, &err), -LEAT_E_CORRUPT);
    unlink(asked.index_path);
    unlink(asked.path);
}

/* ---- memory ---------------------------------------------------------------------------------- */
static int released;

static void count_release(void *owner)
{
    released += owner == &released;
}

static void views_and_release(void **state)
{
    static int32_t grid[10][8];
    for (int i = 0; i < 80; i++)
        grid[i / 8][i % 8] = i;
    /* Every second row from the end backwards, every third column. */
    int64_t strides[] = {-2 * 8 * 4, 3 * 4};
    struct leat_array array = {
        .dtype = LEAT_INT32,
        .dims = 2,
        .shape = {5, 3},
        .strides_bytes = strides,
        .data = &grid[9][0]
    };
    struct leat_source *source;
    int64_t samples;
    must(leat_source_memory(&array, 1, count_release, &released, &source, &err));
    int32_t *rows = read_rows(source, &samples);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(rows[i * 3 + k], grid[9 - 2 * i][3 * k]);
    free(rows);
    assert_int_equal(released, 0);
    leat_source_unref(source);
    assert_int_equal(released, 1);
    array.dims = 0;
    assert_int_equal(leat_source_memory(&array, 1, count_release, &released, &source, &err),
                     -LEAT_E_USAGE);
    assert_int_equal(leat_source_memory(&array, 0, NULL, NULL, &source, &err), -LEAT_E_USAGE);
    assert_int_equal(leat_source_memory(&array, 65, NULL, NULL, &source, &err), -LEAT_E_USAGE);
    assert_int_equal(released, 1);
}

int main(void)
{
    struct mapped_file file;
    signal(SIGBUS, exit_41);
    if (mapped_file_open(&file, "/proc/self/exe", NULL) < 0)
        return 1;
    sigaction(SIGBUS, NULL, &leats_handler);
    mapped_file_close(&file);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(raw_items_keep_their_description),
        cmocka_unit_test(several_files_are_fields),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(a_file_cut_short_gives_bad_samples),
        cmocka_unit_test(a_file_cut_while_it_is_read),
        cmocka_unit_test(another_bus_error_is_the_programs),
        cmocka_unit_test(tokens_are_widened),
        cmocka_unit_test(wrong_tokens_are_refused),
        cmocka_unit_test(megatron_index_gives_type_and_extent),
        cmocka_unit_test(views_and_release),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
