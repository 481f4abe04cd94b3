/* machine_use.h: how much of the machine the run uses, and how much there is. Unknown is NaN. */
#ifndef LEAT_FACTS_MACHINE_USE_H
#define LEAT_FACTS_MACHINE_USE_H

#include "facts/facts.h"

/* CPU time per wall time of a process (cores in use) between two times. */
double process_cpu(const struct facts *facts, int64_t pid, double from_ms, double to_ms);
/* Share of the time in which its main thread was ready to run and had no CPU. */
double process_delay(const struct facts *facts, int64_t pid, double from_ms, double to_ms);
/* Mean of the machine's CPU use, 0..1, between two times. */
double machine_cpu(const struct facts *facts, double from_ms, double to_ms);
/* Cores that other programs left to the run between two times: at least one, and all that the run
 * may use where the machine was not sampled. */
double cores_left(const struct facts *facts, double from_ms, double to_ms);

/* Capacity in bytes: of the smallest device of the run, and of the host as the run may use it (the
 * cgroup's limit or the machine). */
double device_capacity(const struct facts *facts);
double host_capacity(const struct facts *facts);
/* Memory of a process that is its own: RSS without shared pages. */
double private_bytes(const struct proc_sample *sample);

#endif
