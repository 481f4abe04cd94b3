/* rule.h: what a rule is, and what several rules share. Internal to this room.
 *
 * A rule is one file with one function: it reads the facts, and the findings of the rules before it
 * in the table, and adds findings or none. It measures nothing and reads no file and no clock, so
 * the same facts give the same findings. A rule that runs out of memory sets found->failed. */
#ifndef LEAT_DIAGNOSE_RULE_H
#define LEAT_DIAGNOSE_RULE_H

#include "diagnose/diagnose.h"
#include "facts/device_time.h"
#include "facts/loader_view.h"
#include "facts/machine_use.h"
#include "facts/phase_shares.h"

struct rule {
    const char
        *name; /* of the file rule_NAME.c and of the golden databases NAME-{fires,silent}*.sql */
    void (*apply)(const struct facts *facts, struct findings *found);
};
extern const struct rule rules[]; /* in the order in which they are applied */
extern const size_t rule_count;

#define X(name) void rule_##name(const struct facts *facts, struct findings *found);
/* Step time first: later rules refer to its verdict. Within it, a rule that explains a wait
 * comes before the rules that would also count that wait. Rules that fire only when no other
 * does come last. */
#define DIAGNOSE_RULES(X)                                                                          \
    X(straggler)                                                                                   \
    X(input)                                                                                       \
    X(h2d)                                                                                         \
    X(wait)                                                                                        \
    X(launch)                                                                                      \
    X(stall)                                                                                       \
    X(compute)                                                                                     \
    X(insufficient)                                                                                \
    X(balanced)                                                                                    \
    X(memory_creep)                                                                                \
    X(memory_pressure)                                                                             \
    X(memory_imbalance)                                                                            \
    X(gpu_utilization)                                                                             \
    X(gpu_memory)                                                                                  \
    X(gpu_temperature)                                                                             \
    X(throttled)                                                                                   \
    X(cpu)                                                                                         \
    X(ram)                                                                                         \
    X(swapping)                                                                                    \
    X(oom)                                                                                         \
    X(shm)                                                                                         \
    X(fd_limit)
DIAGNOSE_RULES(X)
#undef X

/* ---- thresholds of verdicts.md that several rules use --------------------------------------- */

#define BOUND_WARNING  0.10 /* share of kept time from which a phase is a verdict */
#define BOUND_CRITICAL 0.20
#define STALL_SHARE    0.05 /* share of time that the slowest 1 % of steps must take */
#define COST_FLOOR     10.0 /* no verdict rests on less than ten times leat's own cost */
#define CAPPED_STEPS   20   /* with fewer kept steps, severity is at most warning */
#define LEAST_STEPS    2    /* with fewer kept steps there is no verdict */

/* ---- measures (rule_common.c) -------------------------------------------------------------------
 */

/* The typical rank; NULL where no verdict on step time is possible: no kept steps, or steps
 * shorter than the floor. */
const struct rank_facts *judged_rank(const struct facts *facts);

int slowest_stalls(const struct slowest *slowest); /* 1: they take enough time to be a stall */

/* The share of the phases in `phase_bits` (1 << phase, summed) for a *-BOUND verdict: 0 when it
 * is below the threshold or the floor, or when it is below without the slowest 1 % of steps
 * (then it is an INTERMITTENT STALL). Sets found->failed when out of memory. */
double bound_share(const struct rank_facts *rank, unsigned phase_bits, struct findings *found);

/* The part of a host's share that counts for a verdict: where the device has a clock, its idle
 * time in `phases`, or 0 when that is below the threshold (queued work hid the wait). */
double exposed_share(const struct facts *facts, const struct rank_facts *rank, double share,
                     clock_phases phases);
/* Adds the device's idle time to the evidence, where it has a clock. */
void prove_exposed(struct finding *finding, const struct facts *facts,
                   const struct rank_facts *rank, clock_phases phases);

/* Adds the lines to the places of the finding, with their shares of `of`. */
void device_lines_place(struct finding *finding, const struct device_lines *lines,
                        const struct rank_facts *rank, const char *of);

enum severity share_severity(double share);

/* 1 when the list has a step-time finding of warning or above. */
int step_time_warned(const struct findings *found);

/* Throughput gained when a step of `wall_ms` takes `new_ms`; NaN when that is no gain. */
double gain_of(double wall_ms, double new_ms);

/* 1 when the run was killed or failed. */
int ended_badly(const struct facts *facts);
/* The first exception of a process of the run that contains `text`; NULL: none. */
const struct proc_fact *exception_with(const struct facts *facts, const char *text);

/* Where no DataLoader was seen: adds to the action how to make waiting for input visible. */
void note_missing_loader(struct finding *f, const struct facts *facts);

/* ---- why the input is slow (cause_input.c) --------------------------------------------------- */

/* Fills in why the input of `rank` is slow: cause, action, place, predicted gain and evidence,
 * or what is known where no cause is clear. `input_ms` is the input time per step that the
 * finding is about. Out of memory the action stays NULL, and diagnose() fails. */
void explain_input(const struct facts *facts, const struct rank_facts *rank, double input_ms,
                   struct finding *finding);

#endif
