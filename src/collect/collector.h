/* collector.h: record + observe -> store. One thread, driven by `leat run`'s loop.
 *
 *     process A ──memfd──► ring_reader ─┐
 *     process B ──memfd──► ring_reader ─┼─► step_builder (one per process) ──────► store
 *     /proc, NVML ─────────────────────┘        samples ──────────────────────────────► store
 *
 * The collector owns the readers; it keeps the memory of a process that has ended until all records
 * are read. It never writes to the training's data: a process that fills its memory with garbage
 * loses its own records and nothing else.
 */
#ifndef LEAT_COLLECT_COLLECTOR_H
#define LEAT_COLLECT_COLLECTOR_H

#include "base/err.h"
#include "store/store.h"

#include <sys/types.h>

struct collector;

struct collector_options {
    const char *proc_root; /* "/", but for tests */
    uint64_t start_ns;     /* the run's zero */
    pid_t root_pid;        /* the training command */
    int64_t max_steps;     /* a rank that has made this many is asked to stop; 0: no limit */
    int probe; /* the training was started with the probe: processes without it are reported */
};

/* The writer stays the caller's. */
int collector_new(struct store_writer *writer, const struct collector_options *options,
                  struct collector **ret_collector, struct leat_err *err);
void collector_free(struct collector *c); /* takes NULL */

/* A process has sent its memory: takes ownership of memfd. `pid` is from the kernel (SO_PEERCRED).
 */
int collector_adopt(struct collector *c, int memfd, pid_t pid, struct leat_err *err);

int collector_drain(struct collector *c);  /* every 100 ms: rings -> steps */
int collector_sample(struct collector *c); /* /proc, NVML; call every 100 ms: it has its own rate;
                                              commits each second */

/* A descriptor that is readable when a recording process has ended, or -1; then read its end at
 * once, before its parent does. */
int collector_ends_descriptor(const struct collector *c);
void collector_read_ends(struct collector *c);

/* The training ended: last drain, what is still open is closed, totals, loaders, workers, lost.
 * Call before the writer is closed. */
int collector_finish(struct collector *c);

#endif
