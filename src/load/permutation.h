/* permutation.h: a shuffled order that is computed, not stored.
 *
 * A keyed bijection of 0 … n-1 in constant memory, with random access. It is a Feistel network over
 * pairs (left, right) of a rectangle a x b that just holds n:
 *
 *     position p  =  left * b + right              0 <= left < a, 0 <= right < b, a, b ~ sqrt(n)
 *     even round:    left  = (left  + F(key, right) scaled to a) mod a
 *     odd round:     right = (right + F(key, left)  scaled to b) mod b
 *     index       =  left * b + right; repeated from there while it is n or more
 *
 * Each round is invertible, so the whole is a bijection of the rectangle; repeating it while the
 * result lies outside makes it one of 0 … n-1. The rectangle exceeds n by less than a + b, so
 * repeating is rare except for tiny n.
 *
 * Not cryptographic: the aim is an order that no statistic of a training distinguishes from a
 * random one.
 */
#ifndef LEAT_LOAD_PERMUTATION_H
#define LEAT_LOAD_PERMUTATION_H

#include <stddef.h>
#include <stdint.h>

#define PERMUTATION_MOST_ROUNDS 16

struct permutation {
    uint64_t count;
    uint32_t a, b;
    uint32_t rounds;
    uint32_t keys[PERMUTATION_MOST_ROUNDS];
};

/* A random number for each (seed, a, b): a counter, not a stream. */
uint64_t random_at(uint64_t seed, uint64_t a, uint64_t b);

/* count: 0 to 2^62. Another key is another order. */
void permutation_init(struct permutation *p, uint64_t count, uint64_t key);

uint64_t permutation_at(const struct permutation *p, uint64_t position);

/* The indices of positions first … first + count - 1, plus `offset`. */
void permutation_fill(const struct permutation *p, uint64_t first, size_t count, int64_t offset,
                      int64_t *ret_indices);

#endif
