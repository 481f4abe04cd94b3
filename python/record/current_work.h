/* current_work.h: what the thread that makes batches does at this moment.
 *
 * The line profiler's thread reads it. It is set when a batch is begun, when its collate begins and
 * when it ends: one or two stores each, none for a single sample.
 *
 *     fetch begins        all samples are there        the batch is there
 *     part = SAMPLE ────► part = COLLATE ────────────► part = NONE
 *
 * One thread has it at a time, the first that sets it. A second thread that makes batches meanwhile
 * (two loaders without workers in two threads) is not profiled. `part` is stored last, so a reader
 * that sees it set finds the other fields valid. The work may have ended when the reader acts.
 */
#ifndef LEAT_PYTHON_CURRENT_WORK_H
#define LEAT_PYTHON_CURRENT_WORK_H

#include "leat/recorder.h"

enum work_part { WORK_NONE = -1, WORK_SAMPLE = LEAT_PART_SAMPLE, WORK_COLLATE = LEAT_PART_COLLATE };

struct current_work {
    volatile int32_t part;        /* enum work_part */
    volatile int32_t tid;         /* native thread id */
    volatile unsigned long ident; /* threading.get_ident() of the thread */
    volatile uint32_t loader;     /* as in leat_part() */
    void *volatile thread_state;  /* its PyThreadState */
    volatile int32_t asked; /* by the profiler: the thread is to call profiler_describe_codes() */
};

struct current_work *current_work(void); /* of this process; never NULL */

#endif
