/* test_source_ragged.c: samples of different length, from memory and from Megatron's files. */
#include "spans.h"

#include "base/mem.h"

static char folder[32];

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/leat-rag-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    return rmdir(folder); /* fails where a test left a file */
}

/* ---- memory ---------------------------------------------------------------------------------- */
static int released;

static void count_release(void *owner)
{
    released += owner == &released;
}

/* Sample i has i % 4 rows of two int16, and a label of 100 + i. */
#define SAMPLES 23
static int16_t values[64][2];
static int64_t offsets[SAMPLES + 1], labels[SAMPLES];

static void fill_values(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        offsets[i + 1] = offsets[i] + i % 4;
        labels[i] = 100 + i;
    }
    for (int64_t k = 0; k < offsets[SAMPLES]; k++)
        values[k][0] = (int16_t)k, values[k][1] = (int16_t)-k;
}

static void describe(struct leat_ragged *fields)
{
    fields[0] = (struct leat_ragged){
        .array = {.name = "x",
                  .dtype = LEAT_INT16,
                  .dims = 2,
                  .shape = {offsets[SAMPLES], 2},
                  .data = values},
        .offsets = offsets,
    };
    fields[1] = (struct leat_ragged){
        .array = {.name = "y", .dtype = LEAT_INT64, .dims = 1, .shape = {SAMPLES}, .data = labels}
    };
}

static void spans_point_into_the_memory(void **state)
{
    struct leat_ragged fields[2];
    struct leat_source *source;
    fill_values();
    describe(fields);
    released = 0;
    must(leat_source_ragged(fields, 2, SAMPLES, count_release, &released, &source, &err));
    assert_int_equal(leat_source_count(source), SAMPLES);
    const struct leat_field *field = leat_source_field(source, 0);
    assert_true(field->variable && field->dims == 1 && field->shape[0] == 2);
    assert_int_equal(field->row_bytes, 4);
    assert_false(leat_source_field(source, 1)->variable);

    int64_t indices[] = {22, 0, 7, 7, 3}, ys[5], lengths[SAMPLES];
    struct leat_span spans[5];
    uint8_t *places[] = {(uint8_t *)spans, (uint8_t *)ys};
    struct arena arena = {.most = 0}; /* none is needed */
    struct bad_count bad = {.count = 0};
    must(read_some(source, indices, 5, places, &arena, &bad));
    assert_int_equal(bad.count, 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(spans[i].items, indices[i] % 4);
        assert_ptr_equal(spans[i].data, values[offsets[indices[i]]]);
        assert_int_equal(ys[i], 100 + indices[i]);
    }
    must(leat_source_lengths(source, 0, 0, SAMPLES, lengths, &err));
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(lengths[i], i % 4);
    must(leat_source_lengths(source, 0, 22, 1, lengths, &err));
    assert_int_equal(lengths[0], 2);
    assert_int_equal(leat_source_lengths(source, 0, 22, 2, lengths, &err), -ERANGE);
    assert_int_equal(leat_source_lengths(source, 0, -1, 1, lengths, &err), -ERANGE);
    assert_int_equal(leat_source_lengths(source, 1, 0, 1, lengths, &err), -LEAT_E_USAGE);
    assert_int_equal(leat_source_lengths(source, 2, 0, 1, lengths, &err), -LEAT_E_USAGE);
    leat_source_unref(source);
    assert_int_equal(released, 1);
}

static void offsets_changed_later_give_bad_samples(void **state)
{
    static const int64_t wrong[] = {-1, 64, INT64_MAX, INT64_MIN};
    struct leat_ragged fields[2];
    struct leat_source *source;
    fill_values();
    describe(fields);
    must(leat_source_ragged(fields, 1, SAMPLES, NULL, NULL, &source, &err));
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        int64_t indices[] = {5, 9}, lengths[SAMPLES], right = offsets[5];
        struct leat_span spans[2];
        uint8_t *places[] = {(uint8_t *)spans};
        struct arena arena = {.most = 0};
        struct bad_count bad = {.count = 0};
        offsets[5] = wrong[w];
        must(read_some(source, indices, 2, places, &arena, &bad));
        assert_int_equal(bad.count, 1);
        assert_int_equal(bad.place, 0);
        assert_int_equal(spans[0].items, 0);
        assert_int_equal(spans[1].items, 1);
        assert_true(leat_source_lengths(source, 0, 0, SAMPLES, lengths, &err) < 0);
        offsets[5] = right;
    }
    leat_source_unref(source);
}

static void wrong_arrays_are_refused(void **state)
{
    struct leat_ragged fields[2], *f = fields;
    struct leat_source *source;
    int64_t gaps[] = {8, 2}, columns[] = {4, 1};
    fill_values();
    released = 0;
#define REFUSED(samples, say)                                                                      \
    do {                                                                                           \
        assert_int_equal(                                                                          \
            leat_source_ragged(fields, 2, samples, count_release, &released, &source, &err),       \
            -LEAT_E_USAGE);                                                                        \
        if (!strstr(err.text, say))                                                                \
            fail_msg("%s", err.text);                                                              \
    } while (0)
    describe(f);
    REFUSED(SAMPLES - 1, "instead of 22");
    describe(f), f[0].array.shape[0] = offsets[SAMPLES] - 1;
    REFUSED(SAMPLES, "sample 22 reaches");
    describe(f), offsets[3] = 99;
    REFUSED(SAMPLES, "sample 2 reaches from row 1 to 99");
    describe(f), offsets[3] = 0;
    REFUSED(SAMPLES, "sample 2 reaches from row 1 to 0");
    fill_values();
    describe(f), f[0].array.strides_bytes = gaps;
    REFUSED(SAMPLES, "gaps");
    describe(f), f[0].array.strides_bytes = columns;
    REFUSED(SAMPLES, "gaps");
    describe(f), f[0].array.shape[1] = 0;
    REFUSED(SAMPLES, "no size");
    describe(f), f[0].array.shape[0] = -1;
    REFUSED(SAMPLES, "no size");
    describe(f), f[0].array.data = NULL;
    REFUSED(SAMPLES, "no data");
    describe(f);
    REFUSED(-1, "negative length");
    f[0].array.dims = 0;
    REFUSED(SAMPLES, "0 dimensions");
    assert_int_equal(leat_source_ragged(fields, 0, 0, NULL, NULL, &source, &err), -LEAT_E_USAGE);
    assert_int_equal(released, 0);
}

/* ---- documents ------------------------------------------------------------------------------- */
static char bin_path[64], idx_path[64];

static void write_bin(const void *tokens, size_t bytes)
{
    snprintf(bin_path, sizeof bin_path, "%s/corpus.bin", folder);
    FILE *file = fopen(bin_path, "wb");
    fwrite(tokens, 1, bytes, file);
    fclose(file);
}

/* The sequences' lengths and the documents' first sequences, each list ended by -1. */
static void write_idx(uint8_t type, uint64_t item, const int *lengths, const int *documents)
{
    uint64_t version = 1, n = 0, m = 0;
    while (lengths[n] >= 0)
        n++;
    while (documents[m] >= 0)
        m++;
    snprintf(idx_path, sizeof idx_path, "%s/corpus.idx", folder);
    FILE *file = fopen(idx_path, "wb");
    fwrite("MMIDIDX\0\0", 1, 9, file);
    fwrite(&version, 8, 1, file);
    fwrite(&type, 1, 1, file);
    fwrite(&n, 8, 1, file);
    fwrite(&m, 8, 1, file);
    for (uint64_t i = 0; i < n; i++)
        fwrite(&lengths[i], 4, 1, file);
    for (uint64_t i = 0, at = 0; i < n; at += (uint64_t)lengths[i++] * item)
        fwrite(&at, 8, 1, file);
    for (uint64_t i = 0; i < m; i++) {
        int64_t first = documents[i];
        fwrite(&first, 8, 1, file);
    }
    fclose(file);
}

static int open_documents(enum leat_dtype out, struct leat_source **ret_source)
{
    struct leat_documents asked = {.path = bin_path, .index_path = idx_path, .out = out};
    return leat_source_documents(&asked, ret_source, &err);
}

static const int lengths_of[] = {4, 0, 3, 6, 1, -1}, firsts_of[] = {0, 2, 2, 4, 5, -1};

static void write_corpus(void)
{
    uint16_t tokens[20];
    for (int i = 0; i < 20; i++)
        tokens[i] = (uint16_t)(60000 + i);
    write_bin(tokens, sizeof tokens);
    write_idx(8, 2, lengths_of, firsts_of); /* documents of 4, 0, 9 and 1 tokens */
}

static void documents_are_ranges_of_the_file(void **state)
{
    static const int64_t starts[] = {0, 4, 4, 13, 14};
    write_corpus();
    for (int wide = 0; wide < 2; wide++) {
        struct leat_source *source;
        must(open_documents(wide ? LEAT_INT64 : LEAT_RAW, &source));
        assert_int_equal(leat_source_count(source), 4);
        assert_int_equal(leat_source_field(source, 0)->dtype, wide ? LEAT_INT64 : LEAT_UINT16);
        assert_true(leat_source_field(source, 0)->variable);
        int64_t indices[] = {3, 2, 1, 0}, lengths[4];
        struct leat_span spans[4];
        uint8_t *places[] = {(uint8_t *)spans};
        struct arena arena = {.most = wide ? 3 : 0}; /* an empty document needs none */
        struct bad_count bad = {.count = 0};
        must(read_some(source, indices, 4, places, &arena, &bad));
        must(leat_source_lengths(source, 0, 0, 4, lengths, &err));
        assert_int_equal(bad.count, 0);
        for (int i = 0; i < 4; i++) {
            int64_t first = starts[indices[i]], count = starts[indices[i] + 1] - first;
            assert_int_equal(spans[i].items, count);
            assert_int_equal(lengths[indices[i]], count);
            for (int64_t t = 0; t < count; t++)
                assert_int_equal(wide ? ((const int64_t *)spans[i].data)[t]
                                      : ((const uint16_t *)spans[i].data)[t],
                                 60000 + first + t);
        }
        arena_done(&arena);
        if (wide) { /* the batch has no more memory */
            struct arena none = {.most = 0};
            assert_int_equal(read_some(source, indices, 1, places, &none, &bad), -ENOMEM);
        }
        leat_source_unref(source);
    }
    unlink(bin_path);
    unlink(idx_path);
}

static void a_file_cut_short_gives_bad_documents(void **state)
{
    struct leat_source *source;
    write_corpus();
    must(open_documents(LEAT_INT64, &source));
    assert_int_equal(truncate(bin_path, 2 * 12), 0); /* the third document lacks a token */
    int64_t indices[] = {0, 1, 2, 3};
    struct leat_span spans[4];
    uint8_t *places[] = {(uint8_t *)spans};
    struct arena arena = {.most = 4};
    struct bad_count bad = {.count = 0};
    must(read_some(source, indices, 4, places, &arena, &bad));
    assert_int_equal(bad.count, 2);
    assert_non_null(strstr(bad.text, "corpus.bin was cut short to 24 bytes"));
    assert_int_equal(spans[0].items, 4);
    assert_int_equal(spans[2].items, 0);
    arena_done(&arena);
    leat_source_unref(source);
    unlink(bin_path);
    unlink(idx_path);
}

static void wrong_indexes_are_refused(void **state)
{
    static const int wrong[][6] = {
        {-1         }, /* no documents at all */
        {   0,            -1}, /* the last does not end where the sequences end */
        {             0, 4, -1},
        {             1, 5, -1}, /* the first does not begin at the first sequence */
        {             0,  3, 2, 5, -1}, /* falls */
        {          0,                      6, -1}, /* beyond */
        { 0, 2000000000, -1},
    };
    struct leat_source *source;
    write_corpus();
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
        write_idx(8, 2, lengths_of, wrong[w]);
        if (open_documents(LEAT_INT64, &source) != -LEAT_E_CORRUPT)
            fail_msg("%d: %s", (int)w, err.text);
        assert_non_null(strstr(err.text, "corpus.idx"));
    }
    write_idx(8, 2, lengths_of, firsts_of);
    assert_int_equal(truncate(idx_path, 34 + 5 * 12 + 4 * 8), 0);
    assert_int_equal(open_documents(LEAT_INT64, &source), -LEAT_E_CORRUPT);
    assert_non_null(strstr(err.text, "5 documents do not fit"));
    write_idx(4, 4, lengths_of, firsts_of); /* int32: the .bin is too short by half */
    assert_int_equal(open_documents(LEAT_INT64, &source), -LEAT_E_CORRUPT);
    write_idx(8, 2, lengths_of, firsts_of);
    assert_int_equal(open_documents(LEAT_INT8, &source), -LEAT_E_USAGE);
    unlink(idx_path);
    assert_int_equal(open_documents(LEAT_INT64, &source), -ENOENT);
    unlink(bin_path);
    assert_int_equal(open_documents(LEAT_INT64, &source), -ENOENT);
}

/* Documents that hold nothing, in a file that holds nothing. */
static void empty_documents_are_read(void **state)
{
    static const int none[] = {-1}, empty[] = {0, 0, -1}, firsts[] = {0, 1, 2, -1},
                     zero[] = {0, -1};
    struct leat_source *source;
    write_bin("", 0);
    write_idx(8, 2, empty, firsts);
    must(open_documents(LEAT_INT64, &source));
    assert_int_equal(leat_source_count(source), 2);
    int64_t indices[] = {0, 1};
    struct leat_span spans[2];
    uint8_t *places[] = {(uint8_t *)spans};
    struct arena arena = {.most = 0};
    struct bad_count bad = {.count = 0};
    must(read_some(source, indices, 2, places, &arena, &bad));
    assert_true(bad.count == 0 && spans[0].items == 0 && spans[1].items == 0);
    leat_source_unref(source);
    write_idx(8, 2, none, zero);
    must(open_documents(LEAT_INT64, &source));
    assert_int_equal(leat_source_count(source), 0);
    leat_source_unref(source);
    unlink(bin_path);
    unlink(idx_path);
}

/* The n-th allocation fails, for every n: an error, and nothing is left behind. */
static void every_allocation_may_fail(void **state)
{
    struct leat_source *source;
    write_corpus();
    for (unsigned long n = 1;; n++) {
        mem_fail_at(n);
        int result = open_documents(LEAT_INT64, &source);
        mem_fail_at(0);
        if (!result)
            break;
        assert_int_equal(result, -ENOMEM);
    }
    leat_source_unref(source);
    unlink(bin_path);
    unlink(idx_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_point_into_the_memory),
        cmocka_unit_test(offsets_changed_later_give_bad_samples),
        cmocka_unit_test(wrong_arrays_are_refused),
        cmocka_unit_test(documents_are_ranges_of_the_file),
        cmocka_unit_test(a_file_cut_short_gives_bad_documents),
        cmocka_unit_test(wrong_indexes_are_refused),
        cmocka_unit_test(empty_documents_are_read),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
