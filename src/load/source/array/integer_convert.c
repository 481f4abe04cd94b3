/* integer_convert.c: see integer_convert.h. */
#include "integer_convert.h"

/* GCC vectorises at -O2 only what does not grow the code. */
#if defined(__clang__)
#define VECTORISED
#else
#define VECTORISED __attribute__((optimize("O3")))
#endif

#if defined(__x86_64__)
#define WIDEN_AVX2(name, from_type, to_type)                                                       \
    static VECTORISED __attribute__((target("avx2"))) void name##_avx2(                            \
        void *place, const uint8_t *from, size_t count)                                            \
    {                                                                                              \
        WIDEN_BODY(from_type, to_type)                                                             \
    }
#else
#define WIDEN_AVX2(name, from_type, to_type)
#endif

/* The tokens in the file may be unaligned; the place is aligned. */
#define WIDEN_BODY(from_type, to_type)                                                             \
    typedef from_type __attribute__((aligned(1), may_alias)) item;                                 \
    const item *restrict source = (const void *)from;                                              \
    to_type *restrict target = place;                                                              \
    for (size_t i = 0; i < count; i++)                                                             \
        target[i] = (to_type)source[i];

#define WIDEN(name, from_type, to_type)                                                            \
    static VECTORISED void name(void *place, const uint8_t *from, size_t count){                   \
        WIDEN_BODY(from_type, to_type)} WIDEN_AVX2(name, from_type, to_type)

WIDEN(u8_to_i64, uint8_t, int64_t)
WIDEN(i8_to_i64, int8_t, int64_t)
WIDEN(u16_to_i64, uint16_t, int64_t)
WIDEN(i16_to_i64, int16_t, int64_t)
WIDEN(u32_to_i64, uint32_t, int64_t)
WIDEN(i32_to_i64, int32_t, int64_t)
WIDEN(u8_to_i32, uint8_t, int32_t)
WIDEN(i8_to_i32, int8_t, int32_t)
WIDEN(u16_to_i32, uint16_t, int32_t)
WIDEN(i16_to_i32, int16_t, int32_t)

#if defined(__x86_64__)
#define ROW(from, to, name)                                                                        \
    {                                                                                              \
        from, to, name, name##_avx2                                                                \
    }
#else
#define ROW(from, to, name)                                                                        \
    {                                                                                              \
        from, to, name, name                                                                       \
    }
#endif

static const struct {
    enum leat_dtype from, to;
    integer_convert_fn *plain, *wide;
} conversions[] = {
    ROW(LEAT_UINT8, LEAT_INT64, u8_to_i64),   ROW(LEAT_INT8, LEAT_INT64, i8_to_i64),
    ROW(LEAT_UINT16, LEAT_INT64, u16_to_i64), ROW(LEAT_INT16, LEAT_INT64, i16_to_i64),
    ROW(LEAT_UINT32, LEAT_INT64, u32_to_i64), ROW(LEAT_INT32, LEAT_INT64, i32_to_i64),
    ROW(LEAT_UINT8, LEAT_INT32, u8_to_i32),   ROW(LEAT_INT8, LEAT_INT32, i8_to_i32),
    ROW(LEAT_UINT16, LEAT_INT32, u16_to_i32), ROW(LEAT_INT16, LEAT_INT32, i16_to_i32),
};

static int has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return 0;
#endif
}

integer_convert_fn *integer_convert_find(enum leat_dtype from, enum leat_dtype to)
{
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].from == from && conversions[i].to == to)
            return has_avx2() ? conversions[i].wide : conversions[i].plain;
    return NULL;
}

int integer_convert_is_integer(enum leat_dtype dtype)
{
    return dtype >= LEAT_INT8 && dtype <= LEAT_UINT64;
}
