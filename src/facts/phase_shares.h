/* phase_shares.h: how long the phases of a step take, over the kept steps of one rank. */
#ifndef LEAT_FACTS_PHASE_SHARES_H
#define LEAT_FACTS_PHASE_SHARES_H

#include "facts/facts.h"

/* The rank whose step time stands for the run; NULL when no rank made a step. */
const struct rank_facts *typical_rank(const struct facts *facts);

/* Mean step in ms. The rank has kept steps. */
double step_mean(const struct rank_facts *rank);

/* Mean per kept step in ms, and share of kept time, of a phase; 0 when it was not measured. */
double phase_mean(const struct rank_facts *rank, int phase);
double phase_share(const struct rank_facts *rank, int phase);

/* The interval of kept steps in ms of the run; 0 and 0 for NULL or without kept steps. */
void kept_interval(const struct rank_facts *rank, double *ret_from_ms, double *ret_to_ms);

/* The slowest 1 % of the kept steps, at least one. `slow` has one byte for each entry. */
struct slowest {
    unsigned char *slow; /* owned by the caller: mem_free */
    int64_t steps;
    double share;      /* of kept time that they hold */
    double fair_share; /* what as many average steps would hold */
};
int slowest_find(const struct rank_facts *rank, struct slowest *ret_slowest); /* 0 or -ENOMEM */

#endif
