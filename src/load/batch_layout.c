/* batch_layout.c: see batch_layout.h. */
#include "load/batch_layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- the padding ------------------------------------------------------------------------------
 */

/* Rounds to nearest, ties to even. */
static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float size = fabsf(value);
    if (isnan(value))
        return sign | 0x7e00;
    if (isinf(value))
        return sign | 0x7c00;
    if (size < 0x1p-14f) /* subnormal: whole multiples of 2^-24 */
        return sign | (uint16_t)nearbyintf(size * 0x1p24f);
    int exponent;
    float fraction = frexpf(size, &exponent);                     /* 0.5 to 1 */
    uint32_t mantissa = (uint32_t)nearbyintf(fraction * 2048.0f); /* 1024 to 2048 */
    return sign | (uint16_t)(((uint32_t)(exponent + 13) << 10) + mantissa);
}

static uint16_t bfloat_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct whole_range {
    double least, beyond; /* of integers: least <= value < beyond */
};

static const struct whole_range ranges[LEAT_DTYPES_COUNT] = {
    [LEAT_INT8] = {-0x1p7,  0x1p7 },
      [LEAT_INT16] = {-0x1p15, 0x1p15},
    [LEAT_INT32] = {-0x1p31, 0x1p31},
      [LEAT_INT64] = {-0x1p63, 0x1p63},
    [LEAT_UINT8] = {0,       0x1p8 },
      [LEAT_UINT16] = {0,       0x1p16},
    [LEAT_UINT32] = {0,       0x1p32},
      [LEAT_UINT64] = {0,       0x1p64},
};

/* A whole number in two's complement, little end first as this machine has it. */
static int set_whole(struct field_layout *layout, enum leat_dtype dtype, double value)
{
    const struct whole_range *range = &ranges[dtype];
    if (!(value >= range->least && value < range->beyond) || value != trunc(value))
        return -ERANGE;
    uint64_t bits = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    memcpy(layout->item, &bits, layout->item_bytes);
    return 0;
}

/* The largest finite number of a type. */
static double most_of(enum leat_dtype dtype)
{
    switch (dtype) {
    case LEAT_FLOAT16: return 65504;
    case LEAT_BFLOAT16: return 0x1.fep127;
    case LEAT_FLOAT32:
    case LEAT_COMPLEX64: return FLT_MAX;
    default: return DBL_MAX;
    }
}

/* `value` as one item of the field. */
static int set_item(struct field_layout *layout, enum leat_dtype dtype, double value)
{
    if (isfinite(value) && fabs(value) > most_of(dtype))
        return -ERANGE;
    float single = (float)value;
    uint16_t half;
    switch (dtype) {
    case LEAT_RAW: return value == 0 ? 0 : -ERANGE; /* the meaning of other bytes is not known */
    case LEAT_BOOL: layout->item[0] = value != 0; return 0;
    case LEAT_FLOAT16:
        half = half_of(single);
        memcpy(layout->item, &half, sizeof half);
        return 0;
    case LEAT_BFLOAT16:
        half = bfloat_of(single);
        memcpy(layout->item, &half, sizeof half);
        return 0;
    case LEAT_FLOAT32:
    case LEAT_COMPLEX64: memcpy(layout->item, &single, sizeof single); return 0;
    case LEAT_FLOAT64:
    case LEAT_COMPLEX128: memcpy(layout->item, &value, sizeof value); return 0;
    default: return set_whole(layout, dtype, value);
    }
}

static int init_field(struct field_layout *layout, const struct leat_field *field,
                      const struct leat_layout *asked, struct leat_err *err)
{
    if ((unsigned)asked->kind > LEAT_LAYOUT_CONCAT || asked->multiple < 0 || asked->most < 0)
        return err_set(err, -LEAT_E_USAGE,
                       "The layout of field \"%s\" is unknown, or its numbers are "
                       "negative.",
                       field->name);
    *layout = (struct field_layout){.variable = 1,
                                    .kind = asked->kind,
                                    .multiple = asked->multiple ? asked->multiple : 1,
                                    .most = asked->most ? asked->most : INT64_MAX,
                                    .row_bytes = field->row_bytes,
                                    .item_bytes = field->item_bytes};
    if (asked->kind != LEAT_LAYOUT_PAD)
        return 0;
    if (field->dtype == LEAT_RAW) /* zeros of any size */
        layout->item_bytes = 1;
    if (set_item(layout, field->dtype, asked->value) < 0)
        return err_set(err, -LEAT_E_USAGE, "Field \"%s\" of type %s cannot be padded with %g.",
                       field->name, leat_dtype_name(field->dtype), asked->value);
    return 0;
}

int layout_init(struct batch_layout *layout, const struct leat_source *source,
                const struct leat_layout *all, const struct leat_layout *each, struct leat_err *err)
{
    static const struct leat_layout list = {.kind = LEAT_LAYOUT_LIST};
    *layout = (struct batch_layout){.fields = source->fields};
    for (uint32_t f = 0; f < source->fields; f++) {
        const struct leat_layout *asked = each ? &each[f] : all ? all : &list;
        if (!source->field[f].variable)
            continue;
        layout->variable = 1;
        int failed = init_field(&layout->field[f], &source->field[f], asked, err);
        if (failed)
            return failed;
    }
    return 0;
}

/* ---- the rows ---------------------------------------------------------------------------------
 */
static void fill(uint8_t *to, uint64_t bytes, const struct field_layout *layout)
{
    uint32_t item = layout->item_bytes;
    int same = 1;
    for (uint32_t i = 1; i < item; i++)
        same &= layout->item[i] == layout->item[0];
    if (same) {
        memset(to, layout->item[0], bytes);
        return;
    }
    /* Doubles what is filled until the end. */
    for (uint64_t done = 0; done < bytes;) {
        uint64_t more = done ? done : item;
        more = more < bytes - done ? more : bytes - done;
        memcpy(to + done, done ? to : layout->item, more);
        done += more;
    }
}

static int make_padded(const struct field_layout *layout, struct slot *slot, uint32_t f,
                       int64_t longest)
{
    const struct leat_span *spans = slot->rows[f];
    uint64_t sample_bytes = 0, bytes;
    int64_t over = longest % layout->multiple;
    if ((over && __builtin_add_overflow(longest, layout->multiple - over, &longest)) ||
        __builtin_mul_overflow((uint64_t)longest, layout->row_bytes, &sample_bytes) ||
        __builtin_mul_overflow(sample_bytes, (uint64_t)slot->batch.samples, &bytes))
        bytes = UINT64_MAX; /* more than any arena has */
    uint8_t *to = arena_alloc(&slot->arena, bytes);
    if (!to)
        return -ENOMEM;
    slot->shown[f] = to;
    slot->items[f] = longest;
    for (int64_t i = 0; i < slot->batch.samples; i++, to += sample_bytes) {
        uint64_t own = (uint64_t)slot->lengths[f][i] * layout->row_bytes;
        if (own)
            memcpy(to, spans[i].data, own);
        fill(to + own, sample_bytes - own, layout);
    }
    return 0;
}

static int make_joined(const struct field_layout *layout, struct slot *slot, uint32_t f)
{
    const struct leat_span *spans = slot->rows[f];
    uint64_t bytes;
    int64_t items = 0;
    int too_many = 0;
    for (int64_t i = 0; i < slot->batch.samples; i++)
        too_many |= __builtin_add_overflow(items, slot->lengths[f][i], &items);
    if (too_many || __builtin_mul_overflow((uint64_t)items, layout->row_bytes, &bytes))
        bytes = UINT64_MAX; /* more than any arena has */
    uint8_t *to = arena_alloc(&slot->arena, bytes);
    if (!to)
        return -ENOMEM;
    slot->shown[f] = to;
    slot->items[f] = items;
    for (int64_t i = 0; i < slot->batch.samples; i++) {
        uint64_t own = (uint64_t)slot->lengths[f][i] * layout->row_bytes;
        if (own)
            memcpy(to, spans[i].data, own);
        to += own;
    }
    return 0;
}

int layout_make(const struct batch_layout *layout, struct slot *slot)
{
    int failed = 0;
    for (uint32_t f = 0; f < layout->fields && !failed; f++) {
        const struct field_layout *field = &layout->field[f];
        struct leat_span *spans = slot->rows[f];
        int64_t longest = 0;
        if (!field->variable)
            continue;
        for (int64_t i = 0; i < slot->batch.samples; i++) {
            if (spans[i].items > field->most)
                spans[i].items = field->most;
            slot->lengths[f][i] = spans[i].items;
            longest = spans[i].items > longest ? spans[i].items : longest;
        }
        slot->shown[f] = spans;
        slot->items[f] = longest;
        if (field->kind == LEAT_LAYOUT_PAD)
            failed = make_padded(field, slot, f, longest);
        else if (field->kind == LEAT_LAYOUT_CONCAT)
            failed = make_joined(field, slot, f);
    }
    return failed;
}

uint64_t layout_bytes(const struct batch_layout *layout, const struct slot *slot)
{
    uint64_t bytes = 0;
    for (uint32_t f = 0; f < layout->fields; f++)
        for (int64_t i = 0; layout->field[f].variable && i < slot->batch.samples; i++)
            bytes += (uint64_t)slot->lengths[f][i] * layout->field[f].row_bytes;
    return bytes;
}
