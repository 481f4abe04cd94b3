/* diagnose.h: run.db in, findings out; nothing measured, nothing printed. */
#ifndef LEAT_DIAGNOSE_DIAGNOSE_H
#define LEAT_DIAGNOSE_DIAGNOSE_H

#include "diagnose/facts.h"
#include "diagnose/finding.h"

/* Applies the table of rules (rules.c) in its order. Findings are ordered by weight: the run's one
 * verdict first. At least one finding always comes back (BALANCED, INSUFFICIENT DATA ...). */
int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err);

/* Distribution of a phase over kept steps (phase = PHASES for the whole step), of one rank or, with
 * rank = -1, of the typical rank (facts.typical). All NaN for a rank or a phase that is not there.
 * facts_load computes them once; for facts made by hand they are computed on each call. */
void facts_stats(const struct facts *facts, int rank, int phase, struct step_stats *ret_stats);

/* The loader that feeds the training (or the inference) of a rank: the one waited for longest.
 * NULL when none was seen. */
const struct loader_fact *feeding_loader(const struct facts *facts, int rank);

/* 1 when a line that copies to the device or waits for it does so in the training loop. */
int cuda_line_repeats(const struct cuda_line *line, const struct rank_facts *rank);

#endif
