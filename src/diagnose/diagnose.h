/* diagnose.h: run.db in, findings out; nothing measured, nothing printed. */
#ifndef LEAT_DIAGNOSE_DIAGNOSE_H
#define LEAT_DIAGNOSE_DIAGNOSE_H

#include "diagnose/facts.h"
#include "diagnose/finding.h"

/* Applies the table of rules (rules.c) in its order. Findings are ordered by weight: the run's one
 * verdict first. At least one finding always comes back (BALANCED, INSUFFICIENT DATA ...). */
int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err);

/* Distribution of a phase over kept steps (phase = PHASES for the whole step), of one rank or, with
 * rank = -1, of the typical rank (the one with the median step time). */
struct step_stats {
    double mean, median, p90, p99; /* ms; NaN when not measured */
    double share;                  /* of total kept time */
};
void facts_stats(const struct facts *facts, int rank, int phase, struct step_stats *ret_stats);

#endif
