/* ragged.c: samples of different length in memory, one after the other.
 *
 *     offsets   | 0 | 3 | 3 | 7 |          sample 0 has rows 0 to 2, sample 1 none, sample 2 four
 *     values    | r r r | r r r r |
 *
 * Rows of a variable field are not copied: the spans point to them. Fixed fields beside it (labels,
 * say) are gathered as in memory.c.
 */
#include "load/source/array/gather.h"

#include "load/source.h"

#include <stdio.h>

struct ragged_source {
    struct leat_source base;
    struct {
        const int64_t *offsets; /* NULL: a fixed field */
        int64_t rows;           /* of all samples */
        struct gather gather;
    } part[LEAT_MAX_FIELDS];
    void (*release)(void *owner);
    void *owner;
};

/* Offsets are memory of the caller and may be written to meanwhile: they never give rows outside of
 * the values. */
static int find_rows(const struct ragged_source *r, uint32_t f, int64_t index, int64_t *ret_first,
                     int64_t *ret_rows)
{
    int64_t first = r->part[f].offsets[index], end = r->part[f].offsets[index + 1];
    if (first < 0 || end < first || end > r->part[f].rows)
        return -LEAT_E_CORRUPT;
    *ret_first = first;
    *ret_rows = end - first;
    return 0;
}

static void set_spans(const struct ragged_source *r, uint32_t f,
                      const struct source_request *request, struct source_report *report)
{
    struct leat_span *spans = (struct leat_span *)(void *)request->places[f];
    for (size_t i = 0; i < request->count; i++) {
        int64_t first, rows;
        if (find_rows(r, f, request->indices[i], &first, &rows) < 0) {
            spans[i] = (struct leat_span){0};
            report->bad(report, i, -LEAT_E_CORRUPT, "Its offsets were changed while in use.");
            continue;
        }
        spans[i].data = r->part[f].gather.base + (uint64_t)first * r->base.field[f].row_bytes;
        spans[i].items = rows;
    }
}

static int read_samples(struct leat_source *source, const struct source_request *request,
                        struct source_report *report, struct leat_err *err)
{
    struct ragged_source *r = (struct ragged_source *)source;
    for (uint32_t f = 0; f < source->fields; f++) {
        if (r->part[f].offsets)
            set_spans(r, f, request, report);
        else
            gather_rows(&r->part[f].gather, request->indices, request->count, request->places[f]);
    }
    return 0;
}

static int get_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                       int64_t *ret_lengths, struct leat_err *err)
{
    struct ragged_source *r = (struct ragged_source *)source;
    int64_t from;
    for (size_t i = 0; i < count; i++)
        if (find_rows(r, field, first + (int64_t)i, &from, &ret_lengths[i]) < 0)
            return err_set(err, -LEAT_E_CORRUPT, "The offsets of sample %lld were changed.",
                           (long long)first + (long long)i);
    return 0;
}

static void let_go(struct leat_source *source)
{
    struct ragged_source *r = (struct ragged_source *)source;
    if (r->release)
        r->release(r->owner);
}

static const struct source_ops ragged_ops = {
    .read = read_samples, .lengths = get_lengths, .done = let_go};

static int check_offsets(const struct ragged_source *r, uint32_t f, struct leat_err *err)
{
    int64_t first, rows;
    for (int64_t i = 0; i < r->base.count; i++)
        if (find_rows(r, f, i, &first, &rows) < 0)
            return err_set(err, -LEAT_E_USAGE,
                           "Field \"%s\": sample %lld reaches from row %lld to %lld, but there are "
                           "%lld rows.",
                           r->base.field[f].name, (long long)i, (long long)r->part[f].offsets[i],
                           (long long)r->part[f].offsets[i + 1], (long long)r->part[f].rows);
    return 0;
}

static int add_field(struct ragged_source *r, const struct leat_ragged *asked, int64_t samples,
                     struct leat_err *err)
{
    const struct leat_array *array = &asked->array;
    uint32_t f = r->base.fields;
    uint64_t item = array->dtype == LEAT_RAW ? array->item_bytes : leat_dtype_bytes(array->dtype);
    struct leat_array shaped = *array;
    if (asked->offsets)
        shaped.shape[0] = samples; /* counts the samples; the other dimensions are of a row */
    else if (array->dims && array->shape[0] != samples)
        return err_set(err, -LEAT_E_USAGE, "A fixed field has %lld samples instead of %lld.",
                       (long long)array->shape[0], (long long)samples);
    int failed = source_add_field(&r->base, array->name, array->dtype, item, array->dims,
                                  shaped.shape, NULL, err);
    if (failed)
        return failed;
    const struct leat_field *field = &r->base.field[f];
    if (!item || (asked->offsets && (array->shape[0] < 0 || !field->row_bytes)))
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has rows of no size.", field->name);
    if (!array->data && array->shape[0] && field->row_bytes)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has no data.", field->name);
    gather_init(&r->part[f].gather, array->data, (uint32_t)item, array->dims, array->shape,
                array->strides_bytes);
    r->base.sample_ns += gather_cost_ns(&r->part[f].gather);
    if (!asked->offsets)
        return 0;
    const struct gather *rows = &r->part[f].gather;
    if (array->shape[0] > 1 && (rows->dims || rows->stride_bytes != (int64_t)rows->row_bytes))
        return err_set(err, -LEAT_E_USAGE,
                       "Field \"%s\" has gaps between its rows: samples of different length must "
                       "lie one behind the other.",
                       field->name);
    r->base.field[f].variable = 1;
    r->part[f].rows = array->shape[0];
    r->part[f].offsets = asked->offsets;
    return check_offsets(r, f, err);
}

int leat_source_ragged(const struct leat_ragged *fields, uint32_t count, int64_t samples,
                       void (*release)(void *owner), void *owner, struct leat_source **ret_source,
                       struct leat_err *err)
{
    if (!count || count > LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_USAGE, "A source has 1 to %d fields, not %u.", LEAT_MAX_FIELDS,
                       count);
    struct ragged_source *r = (struct ragged_source *)source_new(sizeof *r, &ragged_ops);
    if (!r)
        return err_set(err, -ENOMEM, "No memory for a source of %u arrays.", count);
    for (uint32_t i = 0; i < count; i++) {
        int failed = add_field(r, &fields[i], samples, err);
        if (failed) {
            leat_source_unref(&r->base); /* `release` is not set yet */
            return failed;
        }
    }
    snprintf(r->base.text, sizeof r->base.text, "ragged: %lld samples of ",
             (long long)r->base.count);
    source_add_fields_text(&r->base);
    r->base.lent = 1;
    r->release = release;
    r->owner = owner;
    *ret_source = &r->base;
    return 0;
}
