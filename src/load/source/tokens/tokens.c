/* tokens.c: fixed-length slices of a flat file of integers, converted while they are copied. */
#include "load/source/array/mapped_file.h"
#include "megatron_index.h"
#include "load/source/array/integer_convert.h"

#include "load/source.h"

#include <stdio.h>
#include <string.h>

struct tokens_source {
    struct leat_source base;
    struct mapped_file file;
    const uint8_t *start;
    uint64_t end; /* bytes of the file that are needed */
    uint64_t item_bytes;
    int64_t length, stride;
    integer_convert_fn *widen;
};

static void read_extent(struct tokens_source *t, uint64_t extent,
                        const struct source_request *request, struct source_report *report)
{
    uint64_t row = t->base.field[0].row_bytes;
    uint64_t before = (uint64_t)(t->start - t->file.base);
    uint8_t *place = request->places[0];
    for (size_t i = 0; i < request->count; i++, place += row) {
        uint64_t at = (uint64_t)(request->indices[i] * t->stride) * t->item_bytes;
        if (extent < t->end && before + at + (uint64_t)t->length * t->item_bytes > extent) {
            char text[200];
            snprintf(text, sizeof text, "%.100s was cut short to %llu bytes while it was in use.",
                     t->file.path, (unsigned long long)extent);
            report->bad(report, i, -LEAT_E_CORRUPT, text);
            continue;
        }
        if (i + 1 < request->count) /* the hardware prefetches the rest */
            __builtin_prefetch(t->start +
                               (uint64_t)(request->indices[i + 1] * t->stride) * t->item_bytes);
        if (t->widen)
            t->widen(place, t->start + at, (size_t)t->length);
        else
            memcpy(place, t->start + at, row);
    }
}

static int read_slices(struct leat_source *source, const struct source_request *request,
                       struct source_report *report, struct leat_err *err)
{
    struct tokens_source *t = (struct tokens_source *)source;
    uint64_t extent, after = mapped_file_extent(&t->file);
    do {
        extent = after;
        read_extent(t, extent, request, report);
        after = mapped_file_extent(&t->file);
    } while (after < extent && after < t->end);
    return 0;
}

static void close_file(struct leat_source *source)
{
    mapped_file_close(&((struct tokens_source *)source)->file);
}

static const struct source_ops tokens_ops = {.read = read_slices, .done = close_file};

/* The type and the number of tokens, from the index or from the size of the file. */
static int find_extent(struct tokens_source *t, const struct leat_tokens *asked,
                       enum leat_dtype *ret_dtype, int64_t *ret_tokens, struct leat_err *err)
{
    if (!asked->index_path) {
        uint64_t item = leat_dtype_bytes(asked->dtype);
        if (!integer_convert_is_integer(asked->dtype))
            return err_set(err, -LEAT_E_USAGE, "Tokens are integers, not %s.",
                           leat_dtype_name(asked->dtype));
        if (asked->offset_bytes < 0 || (uint64_t)asked->offset_bytes > t->file.bytes)
            return err_set(err, -LEAT_E_USAGE, "%s has %llu bytes, less than the offset of %lld.",
                           asked->path, (unsigned long long)t->file.bytes,
                           (long long)asked->offset_bytes);
        uint64_t bytes = t->file.bytes - (uint64_t)asked->offset_bytes;
        if (bytes % item)
            return err_set(err, -LEAT_E_CORRUPT,
                           "%s holds %llu bytes of tokens, which is no multiple of %llu: it is cut "
                           "short, or of another type.",
                           asked->path, (unsigned long long)bytes, (unsigned long long)item);
        *ret_dtype = asked->dtype;
        *ret_tokens = (int64_t)(bytes / item);
        return 0;
    }
    struct mapped_file file;
    struct megatron_index index;
    int failed = mapped_file_open(&file, asked->index_path, err);
    if (failed < 0)
        return failed;
    failed = megatron_index_parse(asked->index_path, file.base, file.bytes, &index, err);
    mapped_file_close(&file);
    if (failed < 0)
        return failed;
    if ((uint64_t)index.tokens > t->file.bytes / leat_dtype_bytes(index.dtype))
        return err_set(err, -LEAT_E_CORRUPT,
                       "%s has %llu bytes, but its index lists %lld tokens of %zu bytes.",
                       asked->path, (unsigned long long)t->file.bytes, (long long)index.tokens,
                       leat_dtype_bytes(index.dtype));
    *ret_dtype = index.dtype;
    *ret_tokens = index.tokens;
    return 0;
}

/* As many whole slices as there are. */
static int set_slices(struct tokens_source *t, const struct leat_tokens *asked,
                      enum leat_dtype dtype, int64_t tokens, struct leat_err *err)
{
    t->length = asked->length;
    t->stride = asked->stride ? asked->stride : asked->length;
    if (t->length < 1 || t->stride < 1)
        return err_set(err, -LEAT_E_USAGE,
                       "length and stride must be positive; they are %lld and "
                       "%lld.",
                       (long long)t->length, (long long)t->stride);
    if (tokens < t->length)
        return err_set(err, -LEAT_E_USAGE, "%s holds %lld tokens, fewer than one sample of %lld.",
                       asked->path, (long long)tokens, (long long)t->length);
    enum leat_dtype out = asked->out == LEAT_RAW ? dtype : asked->out;
    if (out != dtype && !(t->widen = integer_convert_find(dtype, out)))
        return err_set(err, -LEAT_E_USAGE, "Tokens of type %s do not fit into %s.",
                       leat_dtype_name(dtype), leat_dtype_name(out));
    int64_t shape[2] = {(tokens - t->length) / t->stride + 1, t->length};
    t->item_bytes = leat_dtype_bytes(dtype);
    t->start = t->file.base + (asked->index_path ? 0 : asked->offset_bytes);
    t->end = (uint64_t)(t->start - t->file.base) + (uint64_t)tokens * t->item_bytes;
    t->base.sample_ns = 50 + (double)t->length * 0.5;
    int failed = source_add_field(&t->base, asked->name ? asked->name : "tokens", out,
                                  leat_dtype_bytes(out), 2, shape, NULL, err);
    if (!failed && t->widen)
        source_add_decode(&t->base, 0, leat_dtype_name(dtype));
    return failed;
}

int leat_source_tokens(const struct leat_tokens *asked, struct leat_source **ret_source,
                       struct leat_err *err)
{
    enum leat_dtype dtype = LEAT_RAW;
    int64_t tokens = 0;
    struct tokens_source *t = (struct tokens_source *)source_new(sizeof *t, &tokens_ops);
    if (!t)
        return err_set(err, -ENOMEM, "No memory for a source of tokens.");
    int failed = mapped_file_open(&t->file, asked->path, err);
    if (!failed)
        failed = find_extent(t, asked, &dtype, &tokens, err);
    if (!failed)
        failed = set_slices(t, asked, dtype, tokens, err);
    if (failed < 0) {
        leat_source_unref(&t->base);
        return failed;
    }
    snprintf(t->base.text, sizeof t->base.text,
             "tokens %.100s: %lld of %s; %lld samples, one each %lld tokens, of ", asked->path,
             (long long)tokens, leat_dtype_name(dtype), (long long)t->base.count,
             (long long)t->stride);
    source_add_fields_text(&t->base);
    *ret_source = &t->base;
    return 0;
}
