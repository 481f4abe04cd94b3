/* rule.h: what a rule is, and the measures that several rules share. Internal to this room.
 *
 * A rule is one file with one function: it looks at the facts, and at what rules before it in the
 * table have found, and adds findings or nothing. It measures nothing anew, reads no file and no
 * clock, so the same facts give the same findings. A rule that runs out of memory sets
 * found->failed.
 */
#ifndef LEAT_DIAGNOSE_RULE_H
#define LEAT_DIAGNOSE_RULE_H

#include "diagnose/diagnose.h"

struct rule {
    const char
        *name; /* of the file rule_NAME.c and of the golden databases NAME-*-{fires,silent} */
    void (*apply)(const struct facts *facts, struct findings *found);
};
extern const struct rule rules[]; /* in the order in which they are applied */
extern const size_t rule_count;

#define X(name) void rule_##name(const struct facts *facts, struct findings *found);
/* Step time first: later rules refer to its verdict. Within it, what explains waiting comes before
 * what would otherwise complain of it, and the rules that say "nothing else" come last. */
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
#define STALL_SHARE    0.05 /* what the slowest 1 % must hold */
#define COST_FLOOR     10.0 /* nothing rests on less than ten times leat's own cost */
#define CAPPED_STEPS   20   /* with fewer kept steps, severity is capped at warning */
#define LEAST_STEPS    2    /* with fewer kept steps there is no verdict */
#define CLOCK_STEPS    5    /* that the clock of the device must have followed */

/* ---- measures (measure.c) ------------------------------------------------------------------- */

/* The rank whose step time stands for the run; NULL when no rank made a step. */
const struct rank_facts *typical_rank(const struct facts *facts);

/* NULL where the run has too little for any verdict on step time: no kept steps, or steps shorter
 * than the floor. Else the typical rank. */
const struct rank_facts *judged_rank(const struct facts *facts);

/* Mean per kept step in ms, and share of kept time, of a phase; 0 when it was not measured. */
double phase_mean(const struct rank_facts *rank, int phase);
double phase_share(const struct rank_facts *rank, int phase);

/* The slowest 1 % of the kept steps, one at the least. `slow` has one byte an entry. */
struct slowest {
    unsigned char *slow; /* owned by the caller: mem_free */
    int64_t steps;
    double share;      /* of kept time that they hold */
    double fair_share; /* what as many average steps would hold */
};
int slowest_find(const struct rank_facts *rank, struct slowest *ret_slowest);
int slowest_stalls(const struct slowest *slowest); /* 1: they hold enough to be a stall */

/* The share of `phase_bits` (1 << phase, summed) as a *-BOUND verdict sees it: 0 when below the
 * threshold or the floor, or when it vanishes without the slowest 1 % of steps (then it is an
 * INTERMITTENT STALL). Sets found->failed when out of memory. */
double bound_share(const struct rank_facts *rank, unsigned phase_bits, struct findings *found);

/* On the clock of the device (gpu_clock in run-db.md), as shares of the device time measured: what
 * was charged to `phases`, and how much of it was idle. What follows a wait
 * for a copy is charged to h2d, and launches that are late because of a wait to the wait. False:
 * there is no such clock, or it has seen too little. */
typedef unsigned clock_phases; /* a set of enum leat_clock_phase */
#define CLOCK_PHASE(name) (1u << LEAT_CLOCK_##name)
#define ALL_CLOCK_PHASES  ((1u << LEAT_CLOCK_PHASES_COUNT) - 1)
struct gpu_share {
    double device, idle;
};
int gpu_share_of(const struct facts *facts, const struct rank_facts *rank, clock_phases phases,
                 struct gpu_share *ret_share);
/* What is left of a host's share for a verdict: where there is a clock, the device's idle time in
 * `phases`, or 0 when that is below the threshold: the wait was hidden behind queued work. */
double exposed_share(const struct facts *facts, const struct rank_facts *rank, double share,
                     clock_phases phases);
/* Adds the clock's share to the evidence, where there is one. */
void prove_exposed(struct finding *finding, const struct facts *facts,
                   const struct rank_facts *rank, clock_phases phases);

/* The lines of a rank's loop that copy to the device and wait for that, or only wait
 * (device_lines.c). n, ms and bytes are of all of them, a step. */
enum { DEVICE_LINES_MOST = 3 };
enum device_lines_kind { DEVICE_COPY_LINES, DEVICE_WAIT_LINES };
struct device_lines {
    const struct cuda_line *lines[DEVICE_LINES_MOST]; /* where the host spent most time, first */
    size_t count;
    double n, ms, bytes;
    char at[192]; /* the first, "train.py:41" */
};
void device_lines_find(const struct facts *facts, const struct rank_facts *rank,
                       enum device_lines_kind kind, struct device_lines *ret_lines);
/* They become places of the finding, with their shares of `of`. */
void device_lines_place(struct finding *finding, const struct device_lines *lines,
                        const struct rank_facts *rank, const char *of);
/* Of all waits for the device in the loop, the share that belongs to copies. */
double waits_of_copies(const struct facts *facts, const struct rank_facts *rank);
/* How long the device is at work in a step, ms; 0 when it has no clock. */
double device_work_ms(const struct facts *facts, const struct rank_facts *rank);
/* The step if nothing in it waited for the device, ms: as long as host or device is at work. */
double step_without_waits(const struct facts *facts, const struct rank_facts *rank);
/* Of the idle time between launches, the share that is there only because of waits: without them
 * the host would be ahead of the device. */
double launches_after_waits(const struct facts *facts, const struct rank_facts *rank);

enum severity share_severity(double share);

/* 1 when a step-time finding of warning or above is in the list. */
int step_time_warned(const struct findings *found);

/* Throughput gained when a step of `wall_ms` becomes `new_ms`; NaN when that is no gain. */
double gain_of(double wall_ms, double new_ms);

/* The interval of kept steps in ms of the run. */
void kept_interval(const struct rank_facts *rank, double *ret_from_ms, double *ret_to_ms);

/* CPU time per wall time of a process (cores in use) between two times; NaN when not sampled. */
double process_cpu(const struct facts *facts, int64_t pid, double from_ms, double to_ms);
/* Share of the time in which its main thread was ready to run and had no CPU; NaN when not known.
 */
double process_delay(const struct facts *facts, int64_t pid, double from_ms, double to_ms);
/* Mean of the machine's CPU use, 0..1, between two times; NaN when not sampled. */
double machine_cpu(const struct facts *facts, double from_ms, double to_ms);
/* Cores that other programs left to the run between two times: at least one, and all that the run
 * may use where the machine was not sampled. */
double cores_left(const struct facts *facts, double from_ms, double to_ms);

/* Capacity in bytes: of the smallest device of the run, and of the host as the run may use it (the
 * cgroup's limit or the machine). NaN when not known. */
double device_capacity(const struct facts *facts);
double host_capacity(const struct facts *facts);
/* Memory of a process that is its own: RSS without shared pages. NaN when not known. */
double private_bytes(const struct proc_sample *sample);

/* 1 when the run ended other than by itself or by the user: killed, or failed. */
int ended_badly(const struct facts *facts);
/* The first exception of a process of the run that contains `text`; NULL: none. */
const struct proc_fact *exception_with(const struct facts *facts, const char *text);

/* Where no DataLoader was seen: adds to the action how to make the input visible. */
void note_missing_loader(struct finding *f, const struct facts *facts);

/* ---- why the input is slow (cause_input.c) --------------------------------------------------- */

/* Says why the input of `rank` is slow: cause, action, place, predicted gain and evidence; without
 * a clear cause, what is known. `input_ms` is what the finding is about, per step.
 * Out of memory the action stays NULL, which diagnose() takes for what it is. */
void explain_input(const struct facts *facts, const struct rank_facts *rank, double input_ms,
                   struct finding *finding);

#endif
