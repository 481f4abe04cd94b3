/* rules.c: the table of rules. A new rule is one file rule_NAME.c, one row in rule.h, and two
 * golden databases: one for which it fires and one for which it must not. */
#include "diagnose/rule.h"

#define X(name) {#name, rule_##name},
const struct rule rules[] = {DIAGNOSE_RULES(X)};
#undef X
const size_t rule_count = sizeof rules / sizeof *rules;
