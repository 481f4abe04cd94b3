/* making_mark.h: what the files of the extension share.
 *
 * The making mark says what the thread that makes data is inside of at this moment, for whoever
 * samples it from another thread of the same process. It is set where a batch begins, where its
 * collate begins and where it ends: a store or two each, never for a single sample.
 *
 *     fetch begins        the samples are there        the batch is there
 *     part = SAMPLE ────► part = COLLATE ────────────► part = NONE
 *
 * One thread has it at a time, the first that comes: a second one that makes data meanwhile (two
 * loaders without workers in two threads) is not seen. `part` is stored last when it is set, so a
 * reader that finds it set finds the other fields true; it may be gone again when the reader acts.
 */
#ifndef LEAT_PYTHON_CORE_H
#define LEAT_PYTHON_CORE_H

#include "leat/recorder.h"

enum making_part {
    MAKING_NONE = -1,
    MAKING_SAMPLE = LEAT_PART_SAMPLE,
    MAKING_COLLATE = LEAT_PART_COLLATE
};

struct making {
    volatile int32_t part;        /* enum making_part */
    volatile int32_t tid;         /* native thread id of the maker */
    volatile unsigned long ident; /* the same thread as threading.get_ident() has it */
    volatile uint32_t loader;     /* as in leat_part() */
    void *volatile thread_state;  /* its PyThreadState; NULL: not said */
    volatile int32_t asked;       /* by the sampler: the maker is to call sampler_answer() */
};

struct making *core_making(void); /* of this process; never NULL */

#endif
