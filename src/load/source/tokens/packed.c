/* packed.c: documents joined and cut into rows of one length.
 *
 *     documents, in their order    | a a a a a | b b | c c c c c c |      S: the separator
 *     joined                       | a a a a a S b b S c c c c c c |
 *     rows of 6                    | a a a a a S | b b S c c c | c c c . . . |
 *     segments                     | 0 0 0 0 0 0 | 0 0 0 1 1 1 | 0 0 0 - - - |
 *     positions                    | 0 1 2 3 4 5 | 0 1 2 0 1 2 | 0 1 2 0 0 0 |
 *
 * The order of the documents is a keyed permutation, so only the start of each in the joined
 * sequence is kept: 8 bytes per document. A row is found by bisection and copied from the spans of
 * the inner source. Those should lie in memory or in a mapping: a source that makes a document
 * again does so for every row that has a part of it.
 */
#include "load/permutation.h"
#include "load/source.h"
#include "load/source/array/integer_convert.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define CHUNK      32 /* documents asked for at a time */
#define ROOM_ALIGN 64

struct packed_source {
    struct leat_source base;
    struct leat_source *inner; /* a reference */
    struct leat_packed asked;
    int64_t documents;
    int64_t *starts; /* owned: of each document in the order, and the end of the last */
    struct permutation order;
    integer_convert_fn *widen;    /* NULL: they are int64 */
    uint32_t segments, positions; /* their fields; 0: not asked for */
};

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The k-th document of the order. */
static int64_t document_at(const struct packed_source *p, int64_t k)
{
    return p->asked.shuffled ? (int64_t)permutation_at(&p->order, (uint64_t)k) : k;
}

/* The document, by its place in the order, that has the item at `position`. */
static int64_t find_document(const struct packed_source *p, int64_t position)
{
    int64_t low = 0, high = p->documents; /* starts[low] <= position < starts[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (p->starts[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- Memory for an inner source that makes its rows: it lives until they are copied. ------------
 */
struct piece {
    struct piece *next;
    uint8_t bytes[];
};

static void *alloc_row(const struct source_request *request, uint64_t bytes)
{
    struct piece **pieces = request->alloc_owner;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    struct piece *piece = mem_alloc(sizeof *piece + ROOM_ALIGN + (size_t)bytes);
    if (!piece)
        return NULL;
    piece->next = *pieces;
    *pieces = piece;
    uintptr_t at = (uintptr_t)piece->bytes;
    return piece->bytes + (ROOM_ALIGN - at % ROOM_ALIGN) % ROOM_ALIGN;
}

static void free_memory(struct piece *piece)
{
    while (piece) {
        struct piece *next = piece->next;
        mem_free(piece);
        piece = next;
    }
}

/* ---- Rows. ------------------------------------------------------------------------------------
 */
struct row {
    int64_t *items, *segments, *positions; /* the last two NULL where not asked for */
    int64_t first, end;                    /* in the joined sequence */
    int64_t filled;
    int64_t segment; /* of the next document in this row */
};

/* A bad document makes the row bad. */
struct first_bad {
    struct source_report base;
    int code;
    char text[256];
};

static void keep_bad(struct source_report *report, size_t place, int code, const char *text)
{
    struct first_bad *bad = (struct first_bad *)report;
    if (bad->code)
        return;
    bad->code = code;
    snprintf(bad->text, sizeof bad->text, "%s", text);
}

/* The part of the k-th document in the row. */
static void add_part(const struct packed_source *p, struct row *row, int64_t k,
                     const struct leat_span *span)
{
    int64_t start = p->starts[k];
    int64_t from = row->first > start ? row->first - start : 0;
    int64_t to = min64(p->starts[k + 1], row->end) - start, some = min64(to, span->items) - from;
    int64_t *items = row->items + row->filled;
    uint64_t item_bytes = p->inner->field[0].item_bytes;
    const uint8_t *tokens = span->data;
    if (some > 0 && p->widen)
        p->widen(items, tokens + (uint64_t)from * item_bytes, (size_t)some);
    else if (some > 0)
        memcpy(items, tokens + (uint64_t)from * item_bytes, (size_t)some * sizeof *items);
    if (to > span->items)
        items[to - from - 1] = p->asked.separator;
    for (int64_t i = 0; row->segments && i < to - from; i++)
        row->segments[row->filled + i] = row->segment;
    for (int64_t i = 0; row->positions && i < to - from; i++)
        row->positions[row->filled + i] = i;
    row->segment += to > from;
    row->filled += to - from;
}

/* Documents k to k + count - 1 of the order. Negative: the inner source failed. */
static int add_documents(const struct packed_source *p, struct row *row, int64_t k, size_t count,
                         struct first_bad *bad, struct leat_err *err)
{
    int64_t indices[CHUNK];
    struct leat_span spans[CHUNK];
    uint8_t *places[] = {(uint8_t *)spans};
    struct piece *pieces = NULL;
    struct source_request request = {.indices = indices,
                                     .count = count,
                                     .places = places,
                                     .alloc = alloc_row,
                                     .alloc_owner = &pieces};
    for (size_t i = 0; i < count; i++)
        indices[i] = document_at(p, k + (int64_t)i);
    int failed = p->inner->ops->read(p->inner, &request, &bad->base, err);
    for (size_t i = 0; failed >= 0 && i < count && !bad->code; i++) {
        int64_t length = p->starts[k + (int64_t)i + 1] - p->starts[k + (int64_t)i];
        length -= p->asked.separated && k + (int64_t)i + 1 < p->documents;
        if (spans[i].items != length)
            keep_bad(&bad->base, i, -LEAT_E_CORRUPT, "A document changed its length.");
        else
            add_part(p, row, k + (int64_t)i, &spans[i]);
    }
    free_memory(pieces);
    return failed;
}

static void pad_row(const struct packed_source *p, struct row *row)
{
    for (int64_t i = row->filled; i < p->asked.length; i++) {
        row->items[i] = p->asked.pad;
        if (row->segments)
            row->segments[i] = -1;
        if (row->positions)
            row->positions[i] = 0;
    }
}

static int fill_row(const struct packed_source *p, struct row *row, struct first_bad *bad,
                    struct leat_err *err)
{
    int64_t k = find_document(p, row->first);
    while (!bad->code && k < p->documents && p->starts[k] < row->end) {
        size_t count = 0;
        while (count < CHUNK && k + (int64_t)count < p->documents &&
               p->starts[k + (int64_t)count] < row->end)
            count++;
        int failed = add_documents(p, row, k, count, bad, err);
        if (failed < 0)
            return failed;
        k += (int64_t)count;
    }
    pad_row(p, row);
    return 0;
}

static int64_t *place_of(const struct packed_source *p, const struct source_request *request,
                         uint32_t field, size_t i)
{
    return (int64_t *)(void *)(request->places[field] + i * p->base.field[field].row_bytes);
}

static int read_rows(struct leat_source *source, const struct source_request *request,
                     struct source_report *report, struct leat_err *err)
{
    struct packed_source *p = (struct packed_source *)source;
    for (size_t i = 0; i < request->count; i++) {
        struct first_bad bad = {.base = {keep_bad}, .code = 0};
        struct row row = {.items = place_of(p, request, 0, i),
                          .first = request->indices[i] * p->asked.length};
        row.end = min64(row.first + p->asked.length, p->starts[p->documents]);
        if (p->segments)
            row.segments = place_of(p, request, p->segments, i);
        if (p->positions)
            row.positions = place_of(p, request, p->positions, i);
        int failed = fill_row(p, &row, &bad, err);
        if (failed < 0)
            return failed;
        if (bad.code)
            report->bad(report, i, bad.code, bad.text);
    }
    return 0;
}

static void let_go(struct leat_source *source)
{
    struct packed_source *p = (struct packed_source *)source;
    leat_source_unref(p->inner);
    mem_free(p->starts);
}

static const struct source_ops packed_ops = {.read = read_rows, .done = let_go};

/* ---- Setting up. ------------------------------------------------------------------------------
 */
static int check_asked(const struct leat_source *inner, const struct leat_packed *asked,
                       struct leat_err *err)
{
    const struct leat_field *field = &inner->field[0];
    if (inner->fields != 1 || !field->variable || field->dims ||
        !integer_convert_is_integer(field->dtype))
        return err_set(err, -LEAT_E_USAGE,
                       "Only a source of one field, whole numbers of another count in each sample, "
                       "can be packed.");
    if (field->dtype != LEAT_INT64 && !integer_convert_find(field->dtype, LEAT_INT64))
        return err_set(err, -LEAT_E_USAGE, "Tokens of type %s do not fit into int64.",
                       leat_dtype_name(field->dtype));
    if (asked->length < 1 || asked->length > INT64_MAX / 16)
        return err_set(err, -LEAT_E_USAGE, "A row has at least one item, not %lld.",
                       (long long)asked->length);
    if (inner->ops->lengths)
        return 0;
    return err_set(err, -LEAT_E_USAGE,
                   "How long the documents are is not known before they are "
                   "read: they cannot be packed.");
}

static int find_starts(struct packed_source *p, struct leat_err *err)
{
    size_t count = (size_t)p->documents + 1;
    int64_t *lengths = mem_alloc_array(count, sizeof *lengths), end = 0;
    p->starts = mem_alloc_array(count, sizeof *p->starts);
    int failed =
        lengths && p->starts
            ? p->inner->ops->lengths(p->inner, 0, 0, count - 1, lengths, err)
            : err_set(err, -ENOMEM, "No memory for %lld documents.", (long long)p->documents);
    for (int64_t k = 0; failed >= 0 && k < p->documents; k++) {
        p->starts[k] = end;
        if (__builtin_add_overflow(end, lengths[document_at(p, k)], &end) ||
            __builtin_add_overflow(end, p->asked.separated && k + 1 < p->documents, &end))
            failed = err_set(err, -EOVERFLOW, "The documents have more than 2^63 tokens.");
    }
    mem_free(lengths);
    if (failed < 0)
        return failed;
    p->starts[p->documents] = end;
    return 0;
}

static int add_field(struct packed_source *p, const char *name, struct leat_err *err)
{
    int64_t end = p->starts[p->documents], length = p->asked.length;
    int64_t shape[] = {end / length + (p->asked.pad_last && end % length), length};
    return source_add_field(&p->base, name, LEAT_INT64, sizeof(int64_t), 2, shape, NULL, err);
}

static int add_fields(struct packed_source *p, struct leat_err *err)
{
    int failed = add_field(p, p->inner->field[0].name, err);
    if (!failed && p->asked.segments) {
        p->segments = p->base.fields;
        failed = add_field(p, "segments", err);
    }
    if (!failed && p->asked.positions) {
        p->positions = p->base.fields;
        failed = add_field(p, "positions", err);
    }
    return failed;
}

int leat_source_packed(struct leat_source *source, const struct leat_packed *asked,
                       struct leat_source **ret_source, struct leat_err *err)
{
    int failed = check_asked(source, asked, err);
    if (failed < 0)
        return failed;
    struct packed_source *p = (struct packed_source *)source_new(sizeof *p, &packed_ops);
    if (!p)
        return err_set(err, -ENOMEM, "No memory for a source of packed rows.");
    p->inner = leat_source_ref(source);
    p->asked = *asked;
    p->base.lent = source->lent;
    p->documents = source->count;
    p->widen = integer_convert_find(source->field[0].dtype, LEAT_INT64);
    permutation_init(&p->order, (uint64_t)p->documents, random_at(asked->seed, 0, 0));
    failed = find_starts(p, err);
    if (!failed)
        failed = add_fields(p, err);
    if (failed < 0) {
        leat_source_unref(&p->base);
        return failed;
    }
    p->base.sample_ns = 100 + (double)asked->length * p->base.fields * 0.5;
    snprintf(p->base.text, sizeof p->base.text, "packed: %lld rows of %lld documents%s, of ",
             (long long)p->base.count, (long long)p->documents,
             asked->shuffled ? ", shuffled" : "");
    source_add_fields_text(&p->base);
    *ret_source = &p->base;
    return 0;
}
