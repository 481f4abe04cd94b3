/* fold.h: the accounting of verdicts.md: records of one process in, steps with phases out.
 *
 * A pure state machine over records: no clock, no files; what it says depends only on what it was
 * fed, so every rule of the accounting is a unit test.
 */
#ifndef LEAT_COLLECT_FOLD_H
#define LEAT_COLLECT_FOLD_H

#include "record/ring_reader.h"
#include "store/store.h"

struct fold;

/* What comes out. Every callback may be NULL. Times are relative to the run's start. */
struct fold_sink {
    void *context;
    /* row->id is the number of the step in its process; the callee adds the rank. */
    void (*step)(void *context, const struct step_row *row);
    /* Steps of a loop without optimizer were given out so far (flag STEP_INFERENCE), but now an
     * optimizer has stepped: they were an evaluation before the training. Take them back. */
    void (*drop_steps)(void *context);
    /* A span with a name (checkpoint, eval, epoch_start, compile, user's, collectives).
     * other_ns is the part of it inside `other`. */
    void (*span)(void *context, const char *name, int64_t step, uint64_t start_ns, uint64_t end_ns,
                 uint64_t other_ns);
};

struct fold_loader { /* totals of one loader of this process */
    int64_t iterations, batches, samples;
    uint64_t wait_ns, first_wait_ns, background_ns;
    int trained, evaluated; /* iterations of each kind */
};

int fold_new(uint64_t start_ns, uint32_t signals, const struct fold_sink *sink,
             struct fold **ret_fold);
void fold_free(struct fold *fold); /* takes NULL */

/* Names arrive in the header's table after the record may have been written: the collector resolves
 * them and tells fold before feeding. */
int fold_name(struct fold *fold, uint32_t id, const char *name);
void fold_signals(struct fold *fold, uint32_t signals);

/* Feeds a batch of records. Records of one thread come ordered by end time; those of several
 * threads need not be: fold orders what matters. */
int fold_feed(struct fold *fold, const struct ring_record *records, int count);

/* Gives out what is pending: the last step, an unfinished inference batch. */
int fold_end(struct fold *fold, uint64_t end_ns);

int64_t fold_steps(const struct fold *fold);   /* given out so far */
int64_t fold_step_at(const struct fold *fold); /* the step now being made */
const struct fold_loader *fold_loader(const struct fold *fold, uint32_t id); /* NULL: never used */

#endif
