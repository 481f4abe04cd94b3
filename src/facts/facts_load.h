/* facts_load.h: the parts of facts_load, internal to this room (and to its unit tests). */
#ifndef LEAT_DIAGNOSE_FACTS_LOAD_H
#define LEAT_DIAGNOSE_FACTS_LOAD_H

#include "facts.h"

/* One SELECT into an array: `items` is the address of the pointer in facts, which owns what was
 * read also after a failure; `fill` turns a row into an item of `size` zeroed bytes. */
int facts_load_table(struct store_reader *reader, const char *sql, size_t size,
                     void (*fill)(const struct store_row *row, void *item), void *items,
                     size_t *ret_count, struct leat_err *err);

/* Reads input_parts, input_hist and input_lines. */
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
