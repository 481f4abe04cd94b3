/* facts_load.h: the parts of facts_load, internal to src/facts (and its unit tests). */
#ifndef LEAT_FACTS_FACTS_LOAD_H
#define LEAT_FACTS_FACTS_LOAD_H

#include "facts.h"

#include "base/duration_histogram.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Defines load_TABLE(reader, facts, err), which makes an item of each row; `tail` follows FROM in
 * the SELECT. fill(const struct ROW_row *, item *) gets a zeroed item. What was read before a
 * failure is owned by facts. */
#define FACTS_LOADER(table, row, tail, fill, items, count)                                         \
    static int load_##table(struct store_reader *reader, struct facts *f, struct leat_err *err)    \
    {                                                                                              \
        struct row##_row from;                                                                     \
        struct store_cursor rows;                                                                  \
        size_t capacity = 0;                                                                       \
        int more = store_open_##table(reader, tail, &rows, err);                                   \
        while (more >= 0 && (more = store_next_##row(&rows, &from)) > 0) {                         \
            more = mem_reserve(&f->items, &capacity, f->count + 1, sizeof *f->items);              \
            if (more < 0)                                                                          \
                break;                                                                             \
            memset(&f->items[f->count], 0, sizeof *f->items);                                      \
            fill(&from, &f->items[f->count++]);                                                    \
        }                                                                                          \
        store_cursor_done(&rows);                                                                  \
        return more;                                                                               \
    }

/* A cell as facts have it: -1 or NaN where it is NULL. */
static inline int64_t facts_int(int64_t cell)
{
    return cell == STORE_NULL ? -1 : cell;
}
static inline double facts_real(int64_t cell)
{
    return cell == STORE_NULL ? (double)NAN : (double)cell;
}
static inline double facts_ms(int64_t cell_ns)
{
    return facts_real(cell_ns) / 1e6;
}
/* Text is foreign (commands, exceptions): it is cut to the size of its array. */
#define FACTS_TEXT(cell, array) snprintf(array, sizeof(array), "%s", (cell) ? (cell) : "")

/* The bucket of a row, which may hold any number. */
static inline uint32_t facts_bucket(int64_t cell)
{
    return cell < 0 ? 0 : cell < DURATION_BUCKETS ? (uint32_t)cell : DURATION_BUCKETS - 1;
}

/* Reads input_parts, input_hist, input_ready and input_lines. */
int facts_load_input(struct store_reader *reader, struct facts *facts, struct leat_err *err);

/* Reads steps, step_folds and step_hist into facts->ranks, leaves warm-up and compile steps out,
 * and chooses the typical rank. Processes must have been loaded before. */
int facts_load_steps(struct store_reader *reader, struct facts *facts, struct leat_err *err);

/* How many of the first `n` entries are warm-up. `wall_ms` are the step times in order, compile
 * steps left out; scratch is of n doubles. */
size_t facts_warmup(const double *wall_ms, size_t n, double *scratch);

/* Fills rank->stats. 0 or -ENOMEM. */
int facts_compute_stats(struct rank_facts *rank);

/* Chooses facts->typical from the ranks, whose stats are there. 0 or -ENOMEM. */
int facts_choose_typical(struct facts *facts);

#endif
