/* diagnose.h: run.db in, findings out; nothing measured, nothing printed. */
#ifndef LEAT_DIAGNOSE_DIAGNOSE_H
#define LEAT_DIAGNOSE_DIAGNOSE_H

#include "facts/facts.h"
#include "diagnose/finding.h"

/* Applies the table of rules (rules.c) in its order. Findings are ordered by weight: the run's one
 * verdict first. At least one finding always comes back (BALANCED, INSUFFICIENT DATA ...). */
int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err);

#endif
