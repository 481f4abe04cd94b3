/* diagnose.h: run.db in, findings out; nothing measured, nothing printed. */
#ifndef LEAT_DIAGNOSE_DIAGNOSE_H
#define LEAT_DIAGNOSE_DIAGNOSE_H

#include "facts/facts.h"
#include "diagnose/finding.h"

/* Applies the table of rules (rules.c) in its order. Findings are ordered by weight: the run's one
 * verdict first. At least one finding always comes back (BALANCED, INSUFFICIENT DATA ...). */
int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err);

/* The loader that feeds the training (or the inference) of a rank: the one waited for longest.
 * NULL when none was seen. */
const struct loader_fact *feeding_loader(const struct facts *facts, int rank);

/* 1 when a line that copies to the device or waits for it does so in the training loop. */
int cuda_line_repeats(const struct cuda_line *line, const struct rank_facts *rank);

#endif
