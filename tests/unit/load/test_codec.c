/* test_codec.c: values as NumPy wrote them (tests/data/npy), and the errors for values that do not
 * have the type and shape of their field. */
#include "samples.h"

#include "base/mem.h"
#include "base/path.h"
#include "load/codec/codec.h"

struct value {
    uint8_t *bytes;
    size_t count;
};

static struct value value_of(const char *folder, const char *name, const char *ending)
{
    char path[512];
    struct value v;
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(path, sizeof path, "%s/%s/%s.%s", data ? data : "tests/data", folder, name, ending);
    must(path_read_file(path, 1u << 20, (char **)&v.bytes, &v.count, &err));
    return v;
}

static struct value npy_value(const char *name)
{
    return value_of("npy", name, "npy");
}

static _Alignas(64) uint8_t memory[4096];
static int no_more;

static void *give_memory(const struct source_request *request, uint64_t bytes)
{
    return no_more || bytes > sizeof memory ? NULL : memory;
}

static const struct source_request request = {.alloc = give_memory};

static struct codec codec_of(enum leat_codec_kind kind, int variable, struct value v)
{
    struct codec codec;
    struct leat_codec asked = {.kind = kind, .variable = variable};
    must(codec_init(&codec, &asked, "first", v.bytes, v.count, &err));
    return codec;
}

static struct codec array_codec(enum leat_dtype dtype, uint32_t dims, int64_t a, int variable)
{
    struct codec codec;
    struct leat_codec asked = {
        .kind = LEAT_CODEC_ARRAY, .dtype = dtype, .dims = dims, .shape = {a}, .variable = variable};
    must(codec_init(&codec, &asked, "values", NULL, 0, &err));
    return codec;
}

#define assert_said(part)                                                                          \
    do {                                                                                           \
        if (!strstr(err.text, part))                                                               \
            fail_msg("\"%s\" does not say \"%s\"", err.text, part);                                \
    } while (0)

static int decode(const struct codec *codec, struct value v, int stays, void *place)
{
    err.text[0] = 0;
    return codec_decode(codec, v.bytes, v.count, stays, &request, place, &err);
}

/* One type and shape, laid out in every way NumPy has: item k of row i is 4 * i + k. */
static void test_npy_layouts(void **state)
{
    static const char *const names[] = {"i4",        "big_i4",    "fortran",  "fortran_big",
                                        "version_1", "version_2", "version_3"};
    struct value first = npy_value("i4");
    for (int variable = 0; variable < 2; variable++) {
        struct codec codec = codec_of(LEAT_CODEC_NPY, variable, first);
        assert_int_equal(codec.dims, 2 - variable);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            int32_t row[24];
            struct leat_span span = {row, 6};
            struct value v = npy_value(names[i]);
            must(decode(&codec, v, 0, variable ? (void *)&span : row));
            assert_int_equal(span.items, 6);
            for (int k = 0; k < 24; k++)
                assert_int_equal(((const int32_t *)span.data)[k], k);
            for (size_t cut = 0; cut < v.count; cut++) /* none is let through */
                assert_true(decode(&codec, (struct value){v.bytes, cut}, 0,
                                   variable ? (void *)&span : row) < 0);
            mem_free(v.bytes);
        }
        if (variable) {
            struct leat_span span;
            struct value v = npy_value("fortran");
            no_more = 1;
            assert_int_equal(decode(&codec, first, 0, &span), -ENOMEM);
            assert_int_equal(decode(&codec, v, 0, &span), -ENOMEM);
            no_more = 0;
            mem_free(v.bytes);
        }
        codec_done(&codec);
    }
    mem_free(first.bytes);
}

static void test_npy_other(void **state)
{
    uint8_t row[96];
    int64_t single;
    struct value first = npy_value("i4"), scalar = npy_value("scalar");
    static const char *const others[] = {"i8", "u4", "f4", "fortran_3d", "flat", "scalar", "empty"};
    struct codec codec = codec_of(LEAT_CODEC_NPY, 0, first);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct value v = npy_value(others[i]);
        assert_int_equal(decode(&codec, v, 0, row), -LEAT_E_CORRUPT);
        assert_said("of the first one are int32[6,4]");
        mem_free(v.bytes);
    }
    codec_done(&codec);
    codec = codec_of(LEAT_CODEC_NPY, 0, scalar);
    assert_int_equal(codec.dims, 0);
    must(decode(&codec, scalar, 0, &single));
    assert_int_equal(single, 5);
    codec_done(&codec);
    static const char *const refused[] = {"structured", "text", "dates", "objects", "no_bytes"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct value v = npy_value(refused[i]);
        struct leat_codec asked = {.kind = LEAT_CODEC_NPY};
        assert_true(codec_init(&codec, &asked, "first", v.bytes, v.count, &err) < 0);
        assert_said("first");
        mem_free(v.bytes);
    }
    mem_free(first.bytes);
    mem_free(scalar.bytes);
}

static void test_array(void **state)
{
    int16_t numbers[6] = {1, 2, 3, 4, 5, 6}, row[3];
    struct leat_span span;
    struct codec codec = array_codec(LEAT_INT16, 1, 3, 0);
    must(decode(&codec, (struct value){(uint8_t *)(numbers + 1), 6}, 1, row));
    assert_memory_equal(row, numbers + 1, 6);
    assert_int_equal(decode(&codec, (struct value){(uint8_t *)numbers, 5}, 1, row),
                     -LEAT_E_CORRUPT);
    assert_said("the value has 5 bytes, not the 6 of int16[3].");
    assert_int_equal(decode(&codec, (struct value){(uint8_t *)numbers, 12}, 1, row),
                     -LEAT_E_CORRUPT);

    codec = array_codec(LEAT_INT16, 1, 3, 1);
    must(decode(&codec, (struct value){(uint8_t *)numbers, 12}, 1, &span));
    assert_ptr_equal(span.data, numbers); /* they stay: no copy */
    assert_int_equal(span.items, 2);
    must(decode(&codec, (struct value){(uint8_t *)numbers + 1, 6}, 1, &span));
    assert_ptr_equal(span.data, memory); /* unaligned: a copy */
    assert_int_equal(decode(&codec, (struct value){(uint8_t *)numbers, 8}, 1, &span),
                     -LEAT_E_CORRUPT);
    assert_said("a multiple of the 6");
}

/* What pickle.dumps(1) gives. */
static void test_pickle(void **state)
{
    struct value v = {(uint8_t *)"\x80\x04K\x01.", 5};
    struct codec codec;
    uint8_t row[12];
    struct leat_codec asked = {.kind = LEAT_CODEC_NPY};
    assert_int_equal(codec_init(&codec, &asked, "first", v.bytes, v.count, &err), -LEAT_E_USAGE);
    assert_said("first is a pickle");
    codec = array_codec(LEAT_INT16, 1, 3, 0);
    assert_int_equal(decode(&codec, v, 0, row), -LEAT_E_USAGE);
    assert_said("the value is a pickle");
}

static void test_bytes(void **state)
{
    struct leat_span span;
    struct codec codec = codec_of(LEAT_CODEC_BYTES, 0, (struct value){NULL, 0});
    assert_true(codec.variable);
    must(decode(&codec, (struct value){(uint8_t *)"odd", 3}, 0, &span));
    assert_int_equal(span.items, 3);
    assert_memory_equal(span.data, "odd", 3);
    must(decode(&codec, (struct value){(uint8_t *)"", 0}, 0, &span));
    assert_int_equal(span.items, 0);
    assert_non_null(span.data);
}

static void test_decimal(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0",                      0        },
        {"42",                     42       },
        {" 7\n",                   7        },
        {"-3\r\n",                 -3       },
        {"+12",                    12       },
        {"00010",                  10       },
        {"9223372036854775807",    INT64_MAX},
        {"-9223372036854775808\n", INT64_MIN},
    };
    static const char *const bad[] = {
        "", " ", "-", "1.5", "1 2", "0x1", "cat", "12a", "9223372036854775808"};
    struct codec codec = codec_of(LEAT_CODEC_DECIMAL, 0, (struct value){NULL, 0});
    int64_t number;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        must(decode(&codec, (struct value){(uint8_t *)good[i].text, strlen(good[i].text)}, 0,
                    &number));
        assert_int_equal(number, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct value v = {(uint8_t *)bad[i], strlen(bad[i])};
        assert_int_equal(decode(&codec, v, 0, &number), -LEAT_E_CORRUPT);
        assert_said("the value is ");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_layouts), cmocka_unit_test(test_npy_other),
        cmocka_unit_test(test_array),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_pickle),      cmocka_unit_test(test_decimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
