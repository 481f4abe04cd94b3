/* test_codec.c: values as NumPy and torch wrote them (tests/data/npy, tests/data/torch), and what
 * is said of values that are not what their field is. */
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

static struct value torch_value(const char *name)
{
    return value_of("torch", name, "pt");
}

static struct value npy_value(const char *name)
{
    return value_of("npy", name, "npy");
}

static _Alignas(64) uint8_t room[4096];
static int rooms; /* how often it was asked for */
static int no_more;

static void *give_room(const struct source_request *request, uint64_t bytes)
{
    rooms++;
    return no_more || bytes > sizeof room ? NULL : room;
}

static const struct source_request request = {.room = give_room};

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

/* Each type torch has: item k is k, in a row of 3 x 4. */
static void test_torch_types(void **state)
{
    static const char *const names[] = {
        "bool",   "int8",    "int16",    "int32",   "int64",   "uint8",     "uint16",    "uint32",
        "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint8_t row[12 * 16];
        struct value v = torch_value(names[i]);
        struct codec codec = codec_of(LEAT_CODEC_TORCH, 0, v);
        assert_string_equal(leat_dtype_name(codec.dtype), names[i]);
        assert_int_equal(codec.dims, 2);
        assert_int_equal(codec.shape[0], 3);
        assert_int_equal(codec.shape[1], 4);
        assert_int_equal(codec.row_bytes, 12 * leat_dtype_bytes(codec.dtype));
        must(decode(&codec, v, 0, row));
        const uint8_t *last = row + 11 * codec.item_bytes;
        float f;
        double d;
        switch (codec.dtype) {
        case LEAT_BOOL: assert_int_equal(last[0], 1); break;
        case LEAT_FLOAT16: assert_memory_equal(last, "\x80\x49", 2); break;
        case LEAT_BFLOAT16: assert_memory_equal(last, "\x30\x41", 2); break;
        case LEAT_FLOAT32:
        case LEAT_COMPLEX64:
            memcpy(&f, last, sizeof f);
            assert_true(f == 11);
            break;
        case LEAT_FLOAT64:
        case LEAT_COMPLEX128:
            memcpy(&d, last, sizeof d);
            assert_true(d == 11);
            break;
        default:
            assert_int_equal(last[0], 11);
            for (size_t k = 1; k < codec.item_bytes; k++)
                assert_int_equal(last[k], 0);
        }
        codec_done(&codec);
        mem_free(v.bytes);
    }
}

static void test_torch_shapes(void **state)
{
    float row[24];
    int64_t single;
    struct value v = torch_value("single");
    struct codec codec = codec_of(LEAT_CODEC_TORCH, 0, v);
    assert_int_equal(codec.dims, 0);
    must(decode(&codec, v, 0, &single));
    assert_int_equal(single, 7);
    mem_free(v.bytes);
    codec_done(&codec);

    v = torch_value("deep");
    codec = codec_of(LEAT_CODEC_TORCH, 0, v);
    assert_int_equal(codec.dims, 5);
    must(decode(&codec, v, 0, row));
    assert_true(row[23] == 23);
    mem_free(v.bytes);
    codec_done(&codec);

    v = torch_value("view"); /* items 4 to 7 of the storage */
    codec = codec_of(LEAT_CODEC_TORCH, 0, v);
    must(decode(&codec, v, 0, row));
    assert_int_equal(codec.row_bytes, 16);
    assert_true(row[0] == 4 && row[3] == 7);
    mem_free(v.bytes);
    codec_done(&codec);
}

static void test_torch_refused(void **state)
{
    static const struct {
        const char *name, *said;
    } cases[] = {
        {"turned",    "not contiguous"       },
        {"parameter", "than one plain tensor"},
        {"gradient",  "than one plain tensor"},
        {"dict",      "than one plain tensor"},
        {"list",      "than one plain tensor"},
        {"legacy",    "not a whole archive"  },
        {"empty",     "without a single byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct codec codec;
        struct leat_codec asked = {.kind = LEAT_CODEC_TORCH};
        struct value v = torch_value(cases[i].name);
        assert_true(codec_init(&codec, &asked, "first", v.bytes, v.count, &err) < 0);
        assert_said(cases[i].said);
        mem_free(v.bytes);
    }
}

/* Every cut of a value is refused, and so is every value of another type or shape. */
static void test_torch_other(void **state)
{
    uint8_t row[48];
    struct value v = torch_value("float32"), other = torch_value("int32"),
                 deep = torch_value("deep");
    struct codec codec = codec_of(LEAT_CODEC_TORCH, 0, v);
    for (size_t cut = 0; cut < v.count; cut++)
        assert_true(decode(&codec, (struct value){v.bytes, cut}, 0, row) < 0);
    assert_int_equal(decode(&codec, other, 0, row), -LEAT_E_CORRUPT);
    assert_said("the value is int32[3,4], but type and shape of the first one are float32[3,4].");
    assert_int_equal(decode(&codec, deep, 0, row), -LEAT_E_CORRUPT);
    codec_done(&codec);
    mem_free(v.bytes);
    mem_free(other.bytes);
    mem_free(deep.bytes);
}

/* Each byte of the archive changed in turn: an error, or the very row, unless the byte is one of
 * the numbers themselves, which nothing guards. The copy has no byte to spare: ASan sees one too
 * many. */
static void test_torch_damaged(void **state)
{
    float row[12];
    struct value v = torch_value("float32");
    struct codec codec = codec_of(LEAT_CODEC_TORCH, 0, v);
    uint8_t *copy = malloc(v.count);
    static const float numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const uint8_t *data = memmem(v.bytes, v.count, numbers, sizeof numbers);
    assert_non_null(data);
    for (size_t at = 0; at < v.count; at++) {
        if (v.bytes + at >= data && v.bytes + at < data + sizeof numbers)
            continue;
        for (int change = 1; change < 256; change += 21) {
            memcpy(copy, v.bytes, v.count);
            copy[at] = (uint8_t)(copy[at] + change);
            if (decode(&codec, (struct value){copy, v.count}, 0, row) < 0)
                assert_true(*err.text);
            else
                assert_memory_equal(row, numbers, sizeof row);
        }
    }
    /* Both sizes that the directory has of each member, together. */
    for (size_t at = 0; at + 46 < v.count; at++)
        if (memcmp(v.bytes + at, "PK\1\2", 4) == 0) {
            memcpy(copy, v.bytes, v.count);
            copy[at + 8] = 0; /* and no mark behind it */
            memset(copy + at + 20, 0x7f, 8);
            if (decode(&codec, (struct value){copy, v.count}, 0, row) == 0) /* of no concern */
                assert_memory_equal(row, numbers, sizeof row);
        }
    free(copy);
    codec_done(&codec);
    mem_free(v.bytes);
}

static void test_torch_variable(void **state)
{
    struct leat_span span;
    struct value v = torch_value("float32"), empty = torch_value("empty");
    struct codec codec = codec_of(LEAT_CODEC_TORCH, 1, v);
    assert_int_equal(codec.dims, 1);
    assert_int_equal(codec.row_bytes, 16);
    rooms = 0;
    must(decode(&codec, v, 0, &span));
    assert_int_equal(rooms, 1);
    assert_ptr_equal(span.data, room);
    assert_int_equal(span.items, 3);
    assert_true(((const float *)span.data)[11] == 11);
    must(decode(&codec, empty, 0, &span));
    assert_int_equal(span.items, 0);
    no_more = 1;
    assert_int_equal(decode(&codec, v, 0, &span), -ENOMEM);
    no_more = 0;
    codec_done(&codec);
    mem_free(v.bytes);
    mem_free(empty.bytes);
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
    assert_ptr_equal(span.data, room); /* unaligned: a copy */
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
    for (int kind = LEAT_CODEC_NPY; kind <= LEAT_CODEC_TORCH; kind++) {
        struct leat_codec asked = {.kind = (enum leat_codec_kind)kind};
        assert_int_equal(codec_init(&codec, &asked, "first", v.bytes, v.count, &err),
                         -LEAT_E_USAGE);
        assert_said("first is a pickle");
    }
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
        cmocka_unit_test(test_torch_types),    cmocka_unit_test(test_torch_shapes),
        cmocka_unit_test(test_torch_refused),  cmocka_unit_test(test_torch_other),
        cmocka_unit_test(test_torch_variable), cmocka_unit_test(test_torch_damaged),
        cmocka_unit_test(test_npy_layouts),    cmocka_unit_test(test_npy_other),
        cmocka_unit_test(test_array),          cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_pickle),         cmocka_unit_test(test_decimal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
