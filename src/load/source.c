/* source.c: what all sources have in common. */
#include "load/source.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define X(name, text, bytes, code, bits) {text, bytes},
    LEAT_DTYPES(X)
#undef X
};

size_t leat_dtype_bytes(enum leat_dtype dtype)
{
    return (unsigned)dtype < LEAT_DTYPES_COUNT ? dtypes[dtype].bytes : 0;
}

const char *leat_dtype_name(enum leat_dtype dtype)
{
    return (unsigned)dtype < LEAT_DTYPES_COUNT ? dtypes[dtype].name : "?";
}

struct leat_source *source_new(size_t bytes, const struct source_ops *ops)
{
    struct leat_source *source = mem_alloc(bytes);
    if (!source)
        return NULL;
    source->ops = ops;
    source->count = -1;
    atomic_init(&source->refs, 1);
    return source;
}

static int check_length(struct leat_source *source, const char *name, int64_t length,
                        struct leat_err *err)
{
    if (length < 0)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has a negative length.", name);
    if (length > INT64_C(1) << 62)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has more than 2^62 samples.", name);
    if (source->count >= 0 && source->count != length)
        return err_set(err, -LEAT_E_USAGE,
                       "Field \"%s\" has %lld samples, but the fields before it have %lld.", name,
                       (long long)length, (long long)source->count);
    source->count = length;
    return 0;
}

int source_add_field(struct leat_source *source, const char *name, enum leat_dtype dtype,
                     uint64_t item_bytes, uint32_t dims, const int64_t *shape, const char *descr,
                     struct leat_err *err)
{
    if (source->fields == LEAT_MAX_FIELDS)
        return err_set(err, -LEAT_E_USAGE, "A source has at most %d fields.", LEAT_MAX_FIELDS);
    struct leat_field *field = &source->field[source->fields];
    if (name)
        snprintf(field->name, sizeof field->name, "%s", name);
    else
        snprintf(field->name, sizeof field->name, "%u", source->fields);
    if (dims < 1 || dims > LEAT_MAX_DIMS)
        return err_set(err, -LEAT_E_USAGE,
                       "Field \"%s\" has %u dimensions; 1 to %d are possible, the first of them "
                       "counts the samples.",
                       field->name, dims, LEAT_MAX_DIMS);
    if ((unsigned)dtype >= LEAT_DTYPES_COUNT || item_bytes > UINT32_MAX)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has no known type.", field->name);
    int failed = check_length(source, field->name, shape[0], err);
    if (failed)
        return failed;
    uint64_t row = item_bytes;
    for (uint32_t d = 1; d < dims; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(row, (uint64_t)shape[d], &row) ||
            row > (uint64_t)INT64_MAX)
            return err_set(err, -LEAT_E_USAGE, "Field \"%s\" has a shape that does not fit.",
                           field->name);
        field->shape[d - 1] = shape[d];
    }
    field->dtype = dtype;
    field->item_bytes = (uint32_t)item_bytes;
    field->dims = dims - 1;
    field->row_bytes = row;
    field->descr = "";
    if (descr && *descr) {
        if (!(source->descr[source->fields] = mem_strdup(descr)))
            return err_set(err, -ENOMEM, "No memory for field \"%s\".", field->name);
        field->descr = source->descr[source->fields];
    }
    source->fields++;
    return 0;
}

void source_add_fields_text(struct leat_source *source)
{
    char *text = source->text;
    size_t size = sizeof source->text;
    for (uint32_t f = 0; f < source->fields; f++) {
        const struct leat_field *field = &source->field[f];
        size_t at = strlen(text);
        at += (size_t)snprintf(text + at, size - at, "%s%s %s", f ? ", " : "", field->name,
                               leat_dtype_name(field->dtype));
        for (uint32_t d = 0; d < field->dims && at < size; d++)
            at += (size_t)snprintf(text + at, size - at, "%s%lld%s", d ? "," : "[",
                                   (long long)field->shape[d], d + 1 == field->dims ? "]" : "");
        if (at >= size) { /* mark the cut */
            strcpy(text + size - 4, "...");
            return;
        }
    }
}

int64_t leat_source_count(const struct leat_source *source)
{
    return source->count;
}

uint32_t leat_source_fields(const struct leat_source *source)
{
    return source->fields;
}

const struct leat_field *leat_source_field(const struct leat_source *source, uint32_t field)
{
    return field < source->fields ? &source->field[field] : NULL;
}

int leat_source_lengths(struct leat_source *source, uint32_t field, int64_t first, size_t count,
                        int64_t *ret_lengths, struct leat_err *err)
{
    if (field >= source->fields || !source->field[field].variable)
        return err_set(err, -LEAT_E_USAGE, "Field %u does not hold samples of different length.",
                       field);
    if (first < 0 || first > source->count || count > (uint64_t)(source->count - first))
        return err_set(
            err, -ERANGE, "Samples %lld to %lld are not all among the %lld of the source.",
            (long long)first, (long long)first + (long long)count - 1, (long long)source->count);
    if (!source->ops->lengths)
        return err_set(err, -LEAT_E_MISSING,
                       "The lengths are known only when the samples are read.");
    return source->ops->lengths(source, field, first, count, ret_lengths, err);
}

void source_add_decode(struct leat_source *source, uint32_t field, const char *from)
{
    char *text = source->decode;
    size_t size = sizeof source->decode, at = strlen(text);
    int more = snprintf(text + at, size - at, "%s%s from %s", at ? ", " : "",
                        source->field[field].name, from);
    if (at + (size_t)more >= size)
        strcpy(text + size - 4, "...");
}

const char *leat_source_decode(const struct leat_source *source)
{
    return *source->decode ? source->decode : "none";
}

const char *leat_source_text(const struct leat_source *source)
{
    return source->text;
}

struct leat_source *leat_source_ref(struct leat_source *source)
{
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

void leat_source_unref(struct leat_source *source)
{
    if (!source || atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) != 1)
        return;
    source->ops->done(source);
    for (uint32_t f = 0; f < LEAT_MAX_FIELDS; f++)
        mem_free(source->descr[f]);
    mem_free(source);
}
