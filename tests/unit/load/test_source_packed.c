/* test_source_packed.c: the joined rows equal the joined documents. */
#include "spans.h"

#include "base/mem.h"
#include "load/permutation.h"

#define MOST_DOCUMENTS 200

/* Documents of small numbers of any integer type, for leat_source_ragged(). */
struct corpus {
    int64_t documents, tokens;
    int64_t offsets[MOST_DOCUMENTS + 1];
    int64_t wide[MOST_DOCUMENTS * 40];
    uint16_t narrow[MOST_DOCUMENTS * 40];
};

/* Lengths of 0 to `most`, of which many are 0 when `sparse`. */
static void make_corpus(struct corpus *c, int64_t documents, int64_t most, int sparse, uint64_t key)
{
    *c = (struct corpus){.documents = documents};
    for (int64_t i = 0; i < documents; i++) {
        uint64_t random = random_at(key, (uint64_t)i, 1);
        int64_t length = sparse && random % 3 ? 0 : (int64_t)(random / 7 % (uint64_t)(most + 1));
        c->offsets[i + 1] = c->offsets[i] + length;
    }
    c->tokens = c->offsets[documents];
    for (int64_t t = 0; t < c->tokens; t++) {
        c->narrow[t] = (uint16_t)(random_at(key, (uint64_t)t, 2) % 65535);
        c->wide[t] = c->narrow[t];
    }
}

static struct leat_source *source_of(struct corpus *c, int narrow)
{
    struct leat_ragged field = {
        .array = {.name = "tokens",
                  .dtype = narrow ? LEAT_UINT16 : LEAT_INT64,
                  .dims = 1,
                  .shape = {c->tokens},
                  .data = narrow ? (void *)c->narrow : (void *)c->wide},
        .offsets = c->offsets
    };
    struct leat_source *source = NULL;
    must(leat_source_ragged(&field, 1, c->documents, NULL, NULL, &source, &err));
    return source;
}

/* The expected rows, made in the plain way; in `items`, and in `owner` the document of each item,
 * counted in the order. */
static int64_t join(const struct corpus *c, const struct leat_packed *asked, int64_t *items,
                    int64_t *owner)
{
    struct permutation order;
    int64_t count = 0;
    permutation_init(&order, (uint64_t)c->documents, random_at(asked->seed, 0, 0));
    for (int64_t k = 0; k < c->documents; k++) {
        int64_t d = asked->shuffled ? (int64_t)permutation_at(&order, (uint64_t)k) : k;
        for (int64_t t = c->offsets[d]; t < c->offsets[d + 1]; t++, count++)
            items[count] = c->wide[t], owner[count] = k;
        if (asked->separated && k + 1 < c->documents)
            items[count] = asked->separator, owner[count++] = k;
    }
    return count;
}

/* Checks one row against the joined items; what lies past `count` is padding. */
static void check_row(const struct leat_packed *asked, int64_t row, const int64_t *items,
                      const int64_t *owner, int64_t count, const int64_t *read,
                      const int64_t *segments, const int64_t *positions)
{
    int64_t segment = -1, position = 0;
    for (int64_t i = 0, at = row * asked->length; i < asked->length; i++, at++) {
        if (at >= count) {
            assert_int_equal(read[i], asked->pad);
            assert_true(segments[i] == -1 && positions[i] == 0);
            continue;
        }
        int begins = i == 0 || owner[at] != owner[at - 1];
        segment += begins;
        position = begins ? 0 : position + 1;
        assert_int_equal(read[i], items[at]);
        assert_int_equal(segments[i], segment);
        assert_int_equal(positions[i], position);
    }
}

static void check_packed(struct corpus *c, struct leat_packed asked, int narrow)
{
    static int64_t items[MOST_DOCUMENTS * 41], owner[MOST_DOCUMENTS * 41];
    int64_t count = join(c, &asked, items, owner), length = asked.length;
    struct leat_source *inner = source_of(c, narrow), *source;
    asked.segments = asked.positions = 1;
    must(leat_source_packed(inner, &asked, &source, &err));
    leat_source_unref(inner); /* the rows hold it */
    int64_t rows = count / length + (asked.pad_last && count % length);
    assert_int_equal(leat_source_count(source), rows);
    assert_int_equal(leat_source_fields(source), 3);
    int64_t *read = malloc((size_t)length * 2 * 3 * sizeof *read);
    int64_t *segments = read + 2 * length, *positions = segments + 2 * length;
    uint8_t *places[] = {(uint8_t *)read, (uint8_t *)segments, (uint8_t *)positions};
    for (int64_t row = 0; row < rows; row++) { /* each with one from the end beside it */
        int64_t indices[] = {row, rows - 1 - row};
        struct arena arena = {.most = 0};
        struct bad_count bad = {.count = 0};
        memset(read, 0x55, (size_t)length * 2 * 3 * sizeof *read);
        must(read_some(source, indices, 2, places, &arena, &bad));
        assert_int_equal(bad.count, 0);
        for (int i = 0; i < 2; i++)
            check_row(&asked, indices[i], items, owner, count, read + i * length,
                      segments + i * length, positions + i * length);
    }
    free(read);
    leat_source_unref(source);
}

static void rows_are_the_joined_documents(void **state)
{
    static const int64_t documents[] = {0, 1, 2, 33, 64, MOST_DOCUMENTS}, most[] = {0, 1, 5, 40};
    static const int64_t lengths[] = {1, 2, 7, 64, 5000};
    static struct corpus c;
    for (uint64_t round = 0; round < 6 * 4 * 5 * 8; round++) {
        uint64_t r = round;
        int64_t n = documents[r % 6], m = most[r / 6 % 4], length = lengths[r / 24 % 5];
        uint64_t bits = r / 120;
        make_corpus(&c, n, m, bits & 1, round);
        struct leat_packed asked = {.length = length,
                                    .shuffled = bits >> 1 & 1,
                                    .seed = round,
                                    .separated = (int)(round % 2),
                                    .separator = 65535,
                                    .pad_last = bits >> 2 & 1,
                                    .pad = -100};
        check_packed(&c, asked, round / 2 % 2);
    }
}

static void another_seed_is_another_order(void **state)
{
    static struct corpus c;
    static int64_t items[2][MOST_DOCUMENTS * 41], owner[MOST_DOCUMENTS * 41];
    make_corpus(&c, MOST_DOCUMENTS, 20, 0, 5);
    struct leat_packed asked = {.length = 10, .shuffled = 1, .seed = 1};
    int64_t count = join(&c, &asked, items[0], owner);
    asked.seed = 2;
    assert_int_equal(join(&c, &asked, items[1], owner), count);
    assert_memory_not_equal(items[0], items[1], (size_t)count * sizeof **items);
    assert_memory_not_equal(items[0], c.wide, (size_t)count * sizeof **items);
}

/* ---- A source beneath that makes its documents, or cannot -------------------------------------
 */
struct making_source {
    struct leat_source base;
    int64_t bad, grown; /* documents that are bad, or of another length than declared; -1: none */
    int fail;
};

/* Document i has i + 1 times the number i. */
static int make_documents(struct leat_source *source, const struct source_request *request,
                          struct source_report *report, struct leat_err *why)
{
    struct making_source *m = (struct making_source *)source;
    struct leat_span *spans = (struct leat_span *)(void *)request->places[0];
    for (size_t i = 0; i < request->count; i++) {
        int64_t index = request->indices[i], items = index + 1 + (index == m->grown);
        if (m->fail)
            return err_set(why, -EIO, "the disk is gone");
        if (index == m->bad) {
            report->bad(report, i, -LEAT_E_CORRUPT, "document 7 is torn");
            continue;
        }
        int64_t *arena = request->alloc(request, (uint64_t)items * sizeof *arena);
        if (!arena)
            return err_set(why, -ENOMEM, "no arena");
        assert_int_equal((uintptr_t)arena % 64, 0);
        for (int64_t t = 0; t < items; t++)
            arena[t] = index;
        spans[i] = (struct leat_span){arena, items};
    }
    return 0;
}

static int making_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                          int64_t *ret_lengths, struct leat_err *why)
{
    for (size_t i = 0; i < count; i++)
        ret_lengths[i] = first + (int64_t)i + 1;
    return 0;
}

static struct making_source *making(int with_lengths)
{
    static const struct source_ops ops = {
        .read = make_documents, .lengths = making_lengths, .done = faulty_done};
    static const struct source_ops silent = {.read = make_documents, .done = faulty_done};
    struct making_source *m =
        (struct making_source *)source_new(sizeof *m, with_lengths ? &ops : &silent);
    int64_t shape[] = {20};
    must(source_add_field(&m->base, "tokens", LEAT_INT64, 8, 1, shape, NULL, &err));
    m->base.field[0].variable = 1;
    m->bad = m->grown = -1;
    return m;
}

static void documents_may_be_made(void **state)
{
    struct making_source *m = making(1);
    struct leat_source *source;
    struct leat_packed asked = {.length = 10};
    must(leat_source_packed(&m->base, &asked, &source, &err));
    assert_int_equal(leat_source_count(source), 21); /* of 210 tokens */
    int64_t rows[21][10], indices[21];
    for (int64_t i = 0; i < 21; i++)
        indices[i] = i;
    uint8_t *places[] = {(uint8_t *)rows};
    struct arena arena = {.most = 0}; /* a batch of fixed fields may have none */
    struct bad_count bad = {.count = 0};
    must(read_some(source, indices, 21, places, &arena, &bad));
    for (int64_t d = 0, at = 0; d < 20; d++)
        for (int64_t t = 0; t <= d; t++, at++)
            assert_int_equal(rows[at / 10][at % 10], d);
    m->bad = 7; /* tokens 28 to 35 */
    must(read_some(source, indices, 21, places, &arena, &bad));
    assert_int_equal(bad.count, 2);
    assert_int_equal(bad.place, 3);
    assert_string_equal(bad.text, "document 7 is torn");
    m->bad = -1, m->grown = 19, bad.count = 0; /* tokens 190 to 209 */
    must(read_some(source, indices, 21, places, &arena, &bad));
    assert_int_equal(bad.count, 2);
    assert_non_null(strstr(bad.text, "length"));
    m->fail = 1;
    assert_int_equal(read_some(source, indices, 21, places, &arena, &bad), -EIO);
    leat_source_unref(source);
    leat_source_unref(&m->base);
}

static void sources_that_cannot_be_packed_are_refused(void **state)
{
    static struct corpus c;
    make_corpus(&c, 10, 5, 0, 1);
    struct leat_source *inner = source_of(&c, 0), *source, *fixed = numbered(5);
    struct leat_packed asked = {.length = 0};
    assert_int_equal(leat_source_packed(inner, &asked, &source, &err), -LEAT_E_USAGE);
    asked.length = INT64_MAX;
    assert_int_equal(leat_source_packed(inner, &asked, &source, &err), -LEAT_E_USAGE);
    asked.length = 4;
    inner->field[0].dtype = LEAT_UINT64;
    assert_int_equal(leat_source_packed(inner, &asked, &source, &err), -LEAT_E_USAGE);
    inner->field[0].dtype = LEAT_FLOAT64;
    assert_int_equal(leat_source_packed(inner, &asked, &source, &err), -LEAT_E_USAGE);
    inner->field[0].dtype = LEAT_INT64;
    assert_int_equal(leat_source_packed(fixed, &asked, &source, &err), -LEAT_E_USAGE);
    struct making_source *silent = making(0);
    assert_int_equal(leat_source_packed(&silent->base, &asked, &source, &err), -LEAT_E_USAGE);
    assert_non_null(strstr(err.text, "not known before"));
    leat_source_unref(&silent->base);
    leat_source_unref(fixed);
    for (unsigned long n = 1;; n++) { /* every allocation may fail */
        mem_fail_at(n);
        int result = leat_source_packed(inner, &asked, &source, &err);
        mem_fail_at(0);
        if (!result)
            break;
        assert_int_equal(result, -ENOMEM);
    }
    leat_source_unref(source);
    leat_source_unref(inner);
}

/* Through the engine: rows are samples of one size like any others. */
static void rows_are_loaded_like_any_samples(void **state)
{
    static struct corpus c;
    static int64_t items[MOST_DOCUMENTS * 41], owner[MOST_DOCUMENTS * 41];
    make_corpus(&c, MOST_DOCUMENTS, 40, 0, 3);
    struct leat_packed asked = {.length = 16, .shuffled = 1, .seed = 9};
    int64_t count = join(&c, &asked, items, owner), seen = 0;
    struct leat_source *inner = source_of(&c, 1), *source;
    must(leat_source_packed(inner, &asked, &source, &err));
    for (int rank = 0; rank < 2; rank++) {
        struct leat_loader *l = load(source, (struct leat_loader_options){.batch_size = 8,
                                                                          .order = LEAT_ORDER_FULL,
                                                                          .threads = 2,
                                                                          .rank = rank,
                                                                          .world_size = 2});
        struct leat_batch *batch;
        must(leat_loader_start(l, 0, &err));
        while ((batch = next(l))) {
            for (int64_t i = 0; i < batch->samples; i++, seen++)
                assert_memory_equal((int64_t *)batch->data[0] + 16 * i,
                                    items + 16 * batch->indices[i], 16 * sizeof *items);
            leat_batch_unref(batch);
        }
        leat_loader_close(l);
    }
    assert_int_equal(seen, count / 16);
    leat_source_unref(source);
    leat_source_unref(inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_joined_documents),
        cmocka_unit_test(another_seed_is_another_order),
        cmocka_unit_test(documents_may_be_made),
        cmocka_unit_test(sources_that_cannot_be_packed_are_refused),
        cmocka_unit_test(rows_are_loaded_like_any_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
