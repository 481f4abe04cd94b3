/* place_table.h: how often something happened at each place of a program, counted from any thread.
 *
 *     hash of (class, stack) ──► row: the stack, n, ns, bytes, in how many steps
 *
 * A place is a class and a stack: words that say where a thread is, which only its user can read.
 * The table has a fixed number of rows and is never emptied: nothing is allocated, nothing locked.
 * A row is claimed by whoever first comes with its stack; two that come at the same moment may
 * claim two rows for one stack, which its reader adds up. What finds no row is counted in `lost`.
 *
 * Not compared are the stacks themselves but their 64-bit hashes: among 256 rows two differing ones
 * are alike once in 10^14 runs.
 */
#ifndef LEAT_RECORD_PLACE_TABLE_H
#define LEAT_RECORD_PLACE_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

enum { PLACE_ROWS = 256 /* a power of two */, PLACE_WORDS = 192 };

struct place_row { /* what names it is set before `ready`, and never changes */
    _Atomic uint32_t state;
    uint32_t class;
    uint64_t hash;
    int words;
    _Atomic uint64_t n, ns, bytes;
    _Atomic uint64_t steps, last_step; /* in how many it happened; the last of them, from 1 */
    uint64_t stack[PLACE_WORDS];
};

struct place_table { /* begins as zeros */
    _Atomic uint64_t lost;
    struct place_row rows[PLACE_ROWS];
};

/* Adds one occurrence in a step; of a stack that is longer than PLACE_WORDS the first are kept. 1
 * when the place is a new one, else 0. */
int place_table_add(struct place_table *table, uint32_t class, const uint64_t *stack, int words,
                    uint64_t step, uint64_t ns, uint64_t bytes);

/* The row of an index below PLACE_ROWS, or NULL when nothing is in it. */
const struct place_row *place_table_find(const struct place_table *table, uint32_t index);

#endif
