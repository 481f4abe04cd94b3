/* codec.c: see codec.h. */
#include "load/codec/codec.h"

#include "base/mem.h"
#include "load/source/array/gather.h"
#include "load/source/array/npy_header.h"

#include <stdio.h>
#include <string.h>

/* What a .npy describes. */
struct array_value {
    enum leat_dtype dtype;
    uint64_t item_bytes;
    uint32_t swap_bytes; /* as in struct gather */
    int fortran;         /* the first dimension is fastest */
    uint32_t dims;
    int64_t shape[LEAT_MAX_DIMS];
    uint64_t data_offset; /* from the start of the value */
    uint64_t data_bytes;  /* by the shape; within the value */
};

/* Bytes of an array; -1 when they do not fit into 63 bits. */
static int64_t array_bytes(uint64_t item_bytes, uint32_t dims, const int64_t *shape)
{
    uint64_t bytes = item_bytes;
    for (uint32_t d = 0; d < dims; d++)
        if (shape[d] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[d], &bytes))
            return -1;
    return bytes > (uint64_t)INT64_MAX ? -1 : (int64_t)bytes;
}

static int is_pickle(const uint8_t *bytes, uint64_t count)
{
    return count > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 &&
           bytes[count - 1] == '.';
}

static int refuse_pickle(const char *name, struct leat_err *err)
{
    return err_set(
        err, -LEAT_E_USAGE,
        "%s is a pickle, a program that only Python can run: store the values as .npy or as "
        "plain numbers.",
        name);
}

static int parse_npy(const char *name, const uint8_t *bytes, uint64_t count,
                     struct array_value *ret_value, struct leat_err *err)
{
    struct npy_header h;
    if (is_pickle(bytes, count))
        return refuse_pickle(name, err);
    int failed = npy_header_parse_value(name, bytes, count, &h, err);
    if (failed < 0)
        return failed;
    mem_free(h.descr);
    if (h.dtype == LEAT_RAW)
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds items that are no plain numbers (text, dates, structures).", name);
    *ret_value = (struct array_value){
        .dtype = h.dtype,
        .item_bytes = h.item_bytes,
        .swap_bytes = h.swap_bytes,
        .fortran = h.fortran && h.dims > 1,
        .dims = h.dims,
        .data_offset = h.data_offset,
        .data_bytes = h.data_bytes,
    };
    memcpy(ret_value->shape, h.shape, sizeof h.shape);
    return 0;
}

/* "float32[3,4]" into `text`. */
static const char *shape_text(enum leat_dtype dtype, uint32_t dims, const int64_t *shape,
                              char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%s[", leat_dtype_name(dtype));
    for (uint32_t d = 0; d < dims && at < bytes; d++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", d ? "," : "", (long long)shape[d]);
    if (at < bytes)
        snprintf(text + at, bytes - at, "]");
    return text;
}

/* ---- Setting up. */

static int set_row(struct codec *codec, const char *name, enum leat_dtype dtype, uint32_t dims,
                   const int64_t *shape, struct leat_err *err)
{
    codec->dtype = dtype;
    codec->item_bytes = leat_dtype_bytes(dtype);
    if ((unsigned)dtype >= LEAT_DTYPES_COUNT || !codec->item_bytes)
        return err_set(err, -LEAT_E_USAGE, "%s: the values have no known type.", name);
    /* A dimension of samples is added, and one of rows in a variable field. */
    if (dims + (codec->variable ? 1 : 0) >= LEAT_MAX_DIMS)
        return err_set(err, -LEAT_E_USAGE, "%s: values of %u dimensions are more than %d.", name,
                       dims, LEAT_MAX_DIMS - 1);
    int64_t bytes = array_bytes(codec->item_bytes, dims, shape);
    if (bytes < 0)
        return err_set(err, -LEAT_E_USAGE, "%s: the values have a shape that does not fit.", name);
    if (bytes == 0)
        return err_set(err, -LEAT_E_USAGE, "%s: the values have rows without a single byte.", name);
    codec->dims = dims;
    if (dims) /* else `shape` may be NULL */
        memcpy(codec->shape, shape, dims * sizeof *shape);
    codec->row_bytes = (uint64_t)bytes;
    return 0;
}

/* Type and shape from the first value; its first dimension is left out when it differs. */
static int init_from_value(struct codec *codec, const char *name, const uint8_t *first,
                           uint64_t bytes, struct leat_err *err)
{
    struct array_value v;
    int failed = parse_npy(name, first, bytes, &v, err);
    if (failed < 0)
        return failed;
    uint32_t skip = codec->variable ? 1 : 0;
    if (v.dims < skip)
        return err_set(err, -LEAT_E_USAGE,
                       "%s holds a single item; the first dimension was to differ.", name);
    failed = set_row(codec, name, v.dtype, v.dims - skip, v.shape + skip, err);
    if (failed < 0 || v.fortran || v.swap_bytes)
        return failed;
    if (!(codec->pattern = mem_alloc(v.data_offset)))
        return err_set(err, -ENOMEM, "No memory for the header of %s.", name);
    memcpy(codec->pattern, first, v.data_offset);
    codec->pattern_bytes = v.data_offset;
    codec->pattern_items = skip ? (uint64_t)v.shape[0] : 1;
    return 0;
}

int codec_init(struct codec *codec, const struct leat_codec *asked, const char *name,
               const uint8_t *first, uint64_t bytes, struct leat_err *err)
{
    *codec = (struct codec){.kind = asked->kind, .variable = asked->variable != 0};
    switch (asked->kind) {
    case LEAT_CODEC_BYTES:
        codec->variable = 1;
        return set_row(codec, name, LEAT_UINT8, 0, NULL, err);
    case LEAT_CODEC_ARRAY:
        return set_row(codec, name, asked->dtype, asked->dims, asked->shape, err);
    case LEAT_CODEC_NPY: {
        int failed = init_from_value(codec, name, first, bytes, err);
        if (failed < 0)
            codec_done(codec);
        return failed;
    }
    case LEAT_CODEC_DECIMAL:
        codec->variable = 0;
        return set_row(codec, name, LEAT_INT64, 0, NULL, err);
    default: return err_set(err, -LEAT_E_USAGE, "%s: there is no codec %d.", name, asked->kind);
    }
}

void codec_done(struct codec *codec)
{
    mem_free(codec->pattern);
    *codec = (struct codec){0};
}

int codec_add_field(const struct codec *codec, struct leat_source *source, const char *name,
                    int64_t count, struct leat_err *err)
{
    static const char *const from[LEAT_CODECS_COUNT] = {
        [LEAT_CODEC_NPY] = ".npy", [LEAT_CODEC_DECIMAL] = "digits"};
    int64_t shape[LEAT_MAX_DIMS] = {count};
    uint32_t f = source->fields;
    memcpy(shape + 1, codec->shape, codec->dims * sizeof *shape);
    int failed = source_add_field(source, name, codec->dtype, codec->item_bytes, codec->dims + 1,
                                  shape, NULL, err);
    if (failed)
        return failed;
    source->field[f].variable = codec->variable;
    if (from[codec->kind])
        source_add_decode(source, f, from[codec->kind]);
    return 0;
}

int codec_is_plain(const struct codec *codec)
{
    return codec->kind == LEAT_CODEC_ARRAY || codec->kind == LEAT_CODEC_BYTES;
}

int64_t codec_items(const struct codec *codec, uint64_t bytes)
{
    if (!codec->variable || !codec_is_plain(codec))
        return -1;
    return (int64_t)(bytes / codec->row_bytes);
}

double codec_cost_ns(const struct codec *codec, uint64_t bytes)
{
    return (codec_is_plain(codec) ? 20 : 200) +
           0.1 * (double)(codec->variable ? bytes : codec->row_bytes);
}

/* ---- Decoding. */

/* The target of an empty span. */
static _Alignas(8) const uint8_t nothing[8];

static int does_not_fit(uint64_t bytes, struct leat_err *err)
{
    return err_set(err, -ENOMEM, "the value of %llu bytes does not fit into the batch.",
                   (unsigned long long)bytes);
}

/* Copies whole rows, or points to them. */
static int place_rows(const struct codec *codec, const uint8_t *data, uint64_t rows, int stays,
                      const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    uint64_t bytes = rows * codec->row_bytes;
    if (!codec->variable) {
        memcpy(place, data, codec->row_bytes);
        return 0;
    }
    struct leat_span *span = (struct leat_span *)place;
    uint64_t alignment = codec->item_bytes > 8 ? 8 : codec->item_bytes;
    if (!bytes || (stays && (uintptr_t)data % alignment == 0)) {
        *span = (struct leat_span){bytes ? data : nothing, (int64_t)rows};
        return 0;
    }
    void *copy = request->alloc(request, bytes);
    if (!copy)
        return does_not_fit(bytes, err);
    memcpy(copy, data, bytes);
    *span = (struct leat_span){copy, (int64_t)rows};
    return 0;
}

/* Items in another order, or with another byte order: one by one. */
static int place_turned(const struct codec *codec, const struct array_value *v, const uint8_t *data,
                        const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    int64_t shape[LEAT_MAX_DIMS] = {1}, strides[LEAT_MAX_DIMS] = {0};
    int64_t stride = (int64_t)v->item_bytes;
    struct gather g;
    uint8_t *target = place;
    if (codec->variable) {
        if (!v->data_bytes)
            return place_rows(codec, data, 0, 0, request, place, err);
        target = request->alloc(request, v->data_bytes);
        if (!target)
            return does_not_fit(v->data_bytes, err);
        *(struct leat_span *)place = (struct leat_span){target, v->shape[0]};
    }
    for (uint32_t d = 0; d < v->dims; d++) {
        shape[d + 1] = v->shape[d];
        strides[d + 1] = stride;
        stride *= v->shape[d];
    }
    gather_init(&g, data, (uint32_t)v->item_bytes, v->dims + 1, shape, v->fortran ? strides : NULL);
    g.swap_bytes = v->swap_bytes;
    gather_rows(&g, &(int64_t){0}, 1, target);
    return 0;
}

/* Checks the type and shape of the field. */
static int check_kind(const struct codec *codec, const struct array_value *v, struct leat_err *err)
{
    char found[160], wanted[160];
    uint32_t skip = codec->variable ? 1 : 0;
    if (v->dtype == codec->dtype && v->dims == codec->dims + skip &&
        memcmp(v->shape + skip, codec->shape, codec->dims * sizeof *codec->shape) == 0)
        return 0;
    return err_set(err, -LEAT_E_CORRUPT, "the value is %s, but %s of the first one are %s.",
                   shape_text(v->dtype, v->dims, v->shape, found, sizeof found),
                   skip ? "rows" : "type and shape",
                   shape_text(codec->dtype, codec->dims, codec->shape, wanted, sizeof wanted));
}

static int decode_npy(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                      const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    struct array_value v;
    size_t known = codec->pattern_bytes;
    if (known && count >= known && memcmp(bytes, codec->pattern, known) == 0 &&
        (count - known) / codec->row_bytes >= codec->pattern_items)
        return place_rows(codec, bytes + known, codec->pattern_items, stays, request, place, err);
    int failed = parse_npy("the value", bytes, count, &v, err);
    if (!failed)
        failed = check_kind(codec, &v, err);
    if (failed < 0)
        return failed;
    if (v.fortran || v.swap_bytes)
        return place_turned(codec, &v, bytes + v.data_offset, request, place, err);
    return place_rows(codec, bytes + v.data_offset, v.data_bytes / codec->row_bytes, stays, request,
                      place, err);
}

static int decode_plain(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                        const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    char wanted[160];
    int fits = codec->variable ? count % codec->row_bytes == 0 : count == codec->row_bytes;
    if (!fits && is_pickle(bytes, count))
        return refuse_pickle("the value", err);
    if (!fits)
        return err_set(err, -LEAT_E_CORRUPT, "the value has %llu bytes, not %s%llu of %s.",
                       (unsigned long long)count, codec->variable ? "a multiple of the " : "the ",
                       (unsigned long long)codec->row_bytes,
                       shape_text(codec->dtype, codec->dims, codec->shape, wanted, sizeof wanted));
    return place_rows(codec, bytes, count / codec->row_bytes, stays, request, place, err);
}

static int is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int decode_decimal(const uint8_t *bytes, uint64_t count, uint8_t *place,
                          struct leat_err *err)
{
    uint64_t at = 0, start;
    int64_t value = 0;
    while (at < count && is_blank(bytes[at]))
        at++;
    while (count > at && is_blank(bytes[count - 1]))
        count--;
    int minus = at < count && bytes[at] == '-';
    if (at < count && (minus || bytes[at] == '+'))
        at++;
    for (start = at; at < count && bytes[at] >= '0' && bytes[at] <= '9'; at++) {
        int digit = bytes[at] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, minus ? -digit : digit, &value))
            return err_set(err, -LEAT_E_CORRUPT, "the value is a number beyond 64 bits.");
    }
    if (at == start || at < count)
        return err_set(err, -LEAT_E_CORRUPT, "the value is not a number in decimal digits.");
    memcpy(place, &value, sizeof value);
    return 0;
}

int codec_decode(const struct codec *codec, const uint8_t *bytes, uint64_t count, int stays,
                 const struct source_request *request, uint8_t *place, struct leat_err *err)
{
    switch (codec->kind) {
    case LEAT_CODEC_NPY: return decode_npy(codec, bytes, count, stays, request, place, err);
    case LEAT_CODEC_DECIMAL: return decode_decimal(bytes, count, place, err);
    default: return decode_plain(codec, bytes, count, stays, request, place, err);
    }
}
