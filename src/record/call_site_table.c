/* call_site_table.c: see call_site_table.h. */
#include "record/call_site_table.h"

#include <string.h>

enum { FREE, CLAIMED, READY };

/* Words are addresses and small numbers: the multiplication and the shift spread their bits over
 * the whole hash. */
static uint64_t hash_of(uint32_t class, const uint64_t *stack, int words)
{
    uint64_t hash = class + 0x9e3779b97f4a7c15u;
    for (int i = 0; i < words; i++) {
        hash = (hash ^ stack[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The row of this hash, or a free one; NULL when all are used. */
static struct call_site_row *row_of(struct call_site_table *table, uint64_t hash, uint32_t class,
                                    const uint64_t *stack, int words)
{
    for (uint32_t i = 0; i < CALL_SITES; i++) {
        struct call_site_row *row = &table->rows[(hash + i) % CALL_SITES];
        uint32_t state = atomic_load_explicit(&row->state, memory_order_acquire);
        if (state == READY && row->hash == hash)
            return row;
        if (state != FREE || !atomic_compare_exchange_strong(&row->state, &state, CLAIMED))
            continue;
        row->class = class;
        row->hash = hash;
        row->words = words;
        memcpy(row->stack, stack, (size_t)words * sizeof *stack);
        atomic_store_explicit(&row->state, READY, memory_order_release);
        return row;
    }
    return NULL;
}

int call_site_add(struct call_site_table *table, uint32_t class, const uint64_t *stack, int words,
                  uint64_t step, uint64_t ns, uint64_t bytes)
{
    words = words < CALL_SITE_WORDS ? words : CALL_SITE_WORDS;
    struct call_site_row *row = row_of(table, hash_of(class, stack, words), class, stack, words);
    if (!row) {
        atomic_fetch_add_explicit(&table->lost, 1, memory_order_relaxed);
        return 0;
    }
    atomic_fetch_add_explicit(&row->ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&row->bytes, bytes, memory_order_relaxed);
    int is_new = atomic_fetch_add_explicit(&row->n, 1, memory_order_relaxed) == 0;
    if (atomic_load_explicit(&row->last_step, memory_order_relaxed) != step + 1 &&
        atomic_exchange_explicit(&row->last_step, step + 1, memory_order_relaxed) != step + 1)
        atomic_fetch_add_explicit(&row->steps, 1, memory_order_relaxed);
    return is_new;
}

const struct call_site_row *call_site_find(const struct call_site_table *table, uint32_t index)
{
    const struct call_site_row *row = &table->rows[index];
    return atomic_load_explicit(&row->state, memory_order_acquire) == READY ? row : NULL;
}
