/* diagnose.h: from facts to findings. Measures nothing, prints nothing. */
#ifndef LEAT_DIAGNOSE_DIAGNOSE_H
#define LEAT_DIAGNOSE_DIAGNOSE_H

#include "facts/facts.h"
#include "diagnose/finding.h"

/* Applies the table of rules (rules.c) in its order. The first finding is the run's verdict.
 * There is always at least one finding (BALANCED, INSUFFICIENT DATA ...). */
int diagnose(const struct facts *facts, struct findings *ret_findings, struct leat_err *err);

#endif
