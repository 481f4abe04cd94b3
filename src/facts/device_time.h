/* device_time.h: device time of a rank by what its host did, and the lines of its loop that copy to
 * the device or wait for it.
 *
 * Every call of CUDA was counted, none was sampled, so how often a line copies or waits is exact.
 * How long the host was inside the call is not the cost of the line: it may have waited for work
 * that was necessary anyway. The cost comes from the device clock; the lines only give the call
 * site. */
#ifndef LEAT_FACTS_DEVICE_TIME_H
#define LEAT_FACTS_DEVICE_TIME_H

#include "facts/facts.h"

#define CLOCK_STEPS 5 /* that the clock of the device must have measured */

typedef unsigned clock_phases; /* a set of enum leat_clock_phase */
#define CLOCK_PHASE(name) (1u << LEAT_CLOCK_##name)
#define ALL_CLOCK_PHASES  ((1u << LEAT_CLOCK_PHASES_COUNT) - 1)

/* Shares of the measured device time (gpu_clock in run-db.md): what was charged to `phases`, and
 * how much of it was idle. Time after a wait for a copy is charged to h2d; a launch that is late
 * because of a wait is charged to that wait. 0: the device has no clock, or it measured too
 * little. */
struct gpu_share {
    double device, idle;
};
int gpu_share_of(const struct facts *facts, const struct rank_facts *rank, clock_phases phases,
                 struct gpu_share *ret_share);

/* The lines of a rank's loop that copy to the device and wait for it, or only wait. n, ms and
 * bytes are per step, of all of them. */
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

/* 1 when a line that copies to the device or waits for it does so in the training loop. */
int cuda_line_repeats(const struct cuda_line *line, const struct rank_facts *rank);

/* The share of copies in all waits for the device in the loop. */
double waits_of_copies(const struct facts *facts, const struct rank_facts *rank);
/* Time per step in which the device works, ms; 0 when it has no clock. */
double device_work_ms(const struct facts *facts, const struct rank_facts *rank);
/* The step if nothing in it waited for the device, ms: the host's or the device's work,
 * whichever is longer. */
double step_without_waits(const struct facts *facts, const struct rank_facts *rank);
/* The share of the idle time between launches that exists only because of waits: without them
 * the host would be ahead of the device. */
double launches_after_waits(const struct facts *facts, const struct rank_facts *rank);

#endif
