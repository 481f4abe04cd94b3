/* call_site_table.h: how often something happened at each call site, counted from any thread.
 *
 *     hash of (class, stack) ──► row: the stack, n, ns, bytes, in how many steps
 *
 * A call site is a class and a stack: words that only the caller of this table can read. The table
 * has a fixed number of rows and is never emptied: no allocation, no lock. Two threads that add the
 * same new stack at the same time may use two rows for it; the reader adds them up. What finds no
 * free row is counted in `lost`.
 *
 * Rows are compared by their 64-bit hashes, not by their stacks: with 256 rows the probability that
 * two are equal is 10^-15.
 */
#ifndef LEAT_RECORD_CALL_SITE_TABLE_H
#define LEAT_RECORD_CALL_SITE_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

enum { CALL_SITES = 256 /* a power of two */, CALL_SITE_WORDS = 192 };

struct call_site_row { /* class, hash, words and stack are set before `state`, and never change */
    _Atomic uint32_t state;
    uint32_t class;
    uint64_t hash;
    int words;
    _Atomic uint64_t n, ns, bytes;
    _Atomic uint64_t steps, last_step; /* in which it happened; the last of them, from 1 */
    uint64_t stack[CALL_SITE_WORDS];
};

struct call_site_table { /* initially zeros */
    _Atomic uint64_t lost;
    struct call_site_row rows[CALL_SITES];
};

/* Adds one occurrence in a step. Of a stack longer than CALL_SITE_WORDS the first words are kept.
 * Returns 1 when the call site is new, else 0. */
int call_site_add(struct call_site_table *table, uint32_t class, const uint64_t *stack, int words,
                  uint64_t step, uint64_t ns, uint64_t bytes);

/* The row of an index below CALL_SITES, or NULL when it is free. */
const struct call_site_row *call_site_find(const struct call_site_table *table, uint32_t index);

#endif
