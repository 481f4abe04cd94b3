/* permutation.c: see permutation.h. The bulk path works on blocks of positions, one array for the
 * left halves and one for the right, so that the compiler turns each round into vector code. */
#include "load/permutation.h"

#include <math.h>

/* Six rounds of a good mixer pass every test of tests/unit/load/test_permutation.c; four suffice
 * with ideal ones (Luby and Rackoff). A small rectangle gives each round few values to mix, so it
 * has more rounds. */
#define ROUNDS       6
#define ROUNDS_SMALL 16
#define SMALL_COUNT  65536
#define BLOCK        256
#define LANES        16 /* two vectors of AVX2; blocks are a multiple of it */

/* Inlined into functions compiled for other processors. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

static uint64_t mix64(uint64_t x)
{
    /* The finaliser of splitmix64. */
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t random_at(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = mix64(seed + 0x9e3779b97f4a7c15ull);
    x = mix64(x + a * 0x9e3779b97f4a7c15ull + 0x632be59bd9b4e019ull);
    return mix64(x + b * 0x9e3779b97f4a7c15ull + 0xd1b54a32d192ed03ull);
}

void permutation_init(struct permutation *p, uint64_t count, uint64_t key)
{
    uint64_t a = (uint64_t)sqrt((double)count);
    while (a * a < count) /* sqrt of a double may be too small */
        a++;
    p->count = count;
    p->a = (uint32_t)(a ? a : 1);
    p->b = (uint32_t)(a ? (count + a - 1) / a : 1);
    p->rounds = count < SMALL_COUNT ? ROUNDS_SMALL : ROUNDS;
    for (uint32_t r = 0; r < p->rounds; r++)
        p->keys[r] = (uint32_t)(random_at(key, r, 0) >> 32);
}

/* The finaliser of murmur3 with a key, scaled to 0 … size-1 by the high half of a product. */
static ALWAYS_INLINE uint32_t scaled(uint32_t x, uint32_t key, uint32_t size)
{
    x = (x + key) * 0x9e3779b1u;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return (uint32_t)((uint64_t)x * size >> 32);
}

/* (x + y) mod size for x, y < size <= 2^31. */
static ALWAYS_INLINE uint32_t add_mod(uint32_t x, uint32_t y, uint32_t size)
{
    uint32_t sum = x + y;
    return sum >= size ? sum - size : sum;
}

static uint64_t pass(const struct permutation *p, uint64_t position)
{
    uint32_t left = (uint32_t)(position / p->b), right = (uint32_t)(position % p->b);
    for (uint32_t r = 0; r < p->rounds; r += 2) {
        left = add_mod(left, scaled(right, p->keys[r], p->a), p->a);
        right = add_mod(right, scaled(left, p->keys[r + 1], p->b), p->b);
    }
    return (uint64_t)left * p->b + right;
}

uint64_t permutation_at(const struct permutation *p, uint64_t position)
{
    do
        position = pass(p, position);
    while (position >= p->count);
    return position;
}

/* One round over the first `lanes` * LANES of a block. Written for the vectoriser: no branch, no
 * aliasing. */
static ALWAYS_INLINE void turn(uint32_t *restrict change, const uint32_t *restrict by, uint32_t key,
                               uint32_t size, size_t lanes)
{
    for (size_t i = 0; i < lanes * LANES; i++)
        change[i] = add_mod(change[i], scaled(by[i], key, size), size);
}

static ALWAYS_INLINE void pass_block_body(const struct permutation *p, uint32_t *left,
                                          uint32_t *right, size_t lanes)
{
    for (uint32_t r = 0; r < p->rounds; r += 2) {
        turn(left, right, p->keys[r], p->a, lanes);
        turn(right, left, p->keys[r + 1], p->b, lanes);
    }
}

/* GCC vectorises at -O2 only what costs no size; clang does not know the attribute and does not
 * need it. */
#if defined(__clang__)
#define VECTORISED
#else
#define VECTORISED __attribute__((optimize("O3")))
#endif

static VECTORISED void pass_block(const struct permutation *p, uint32_t *left, uint32_t *right,
                                  size_t lanes)
{
    pass_block_body(p, left, right, lanes);
}

#if defined(__x86_64__)
static VECTORISED __attribute__((target("avx2"))) void
pass_block_avx2(const struct permutation *p, uint32_t *left, uint32_t *right, size_t lanes)
{
    pass_block_body(p, left, right, lanes);
}
#endif

/* `some` positions from `first` on; the rest of the last lanes is padding. */
static void fill_block(const struct permutation *p, uint64_t first, size_t some, int64_t offset,
                       int64_t *indices)
{
    uint32_t left[BLOCK], right[BLOCK];
    uint32_t l = (uint32_t)(first / p->b), r = (uint32_t)(first % p->b);
    size_t lanes = (some + LANES - 1) / LANES;
    for (size_t i = 0; i < lanes * LANES; i++) {
        left[i] = l;
        right[i] = r;
        if (++r == p->b) {
            r = 0;
            l = l + 1 == p->a ? 0 : l + 1; /* beyond the end in the padding only */
        }
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        pass_block_avx2(p, left, right, lanes);
    else
#endif
        pass_block(p, left, right, lanes);
    for (size_t i = 0; i < some; i++) {
        uint64_t index = (uint64_t)left[i] * p->b + right[i];
        if (__builtin_expect(index >= p->count, 0))
            index = permutation_at(p, index);
        indices[i] = (int64_t)index + offset;
    }
}

void permutation_fill(const struct permutation *p, uint64_t first, size_t count, int64_t offset,
                      int64_t *ret_indices)
{
    while (count >= LANES / 4) { /* fewer are cheaper one by one */
        size_t some = count < BLOCK ? count : BLOCK;
        fill_block(p, first, some, offset, ret_indices);
        first += some;
        ret_indices += some;
        count -= some;
    }
    for (size_t i = 0; i < count; i++)
        ret_indices[i] = (int64_t)permutation_at(p, first + i) + offset;
}
