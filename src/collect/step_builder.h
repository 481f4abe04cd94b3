/* step_builder.h: the records of one process in, steps with phases out (the rules are in
 * docs/verdicts.md and docs/metrics.md).
 *
 * A pure state machine: no clock, no files. Its output depends only on the records, so every rule
 * has a unit test. step_builder_internal.h has its states.
 */
#ifndef LEAT_COLLECT_STEP_BUILDER_H
#define LEAT_COLLECT_STEP_BUILDER_H

#include "record/ring_reader.h"
#include "store/store.h"

struct step_builder;

/* Output. Every callback may be NULL. Times are relative to the run's start. */
struct step_sink {
    void *context;
    /* row->id is the number of the step in its process; the callee adds the rank. */
    void (*step)(void *context, const struct step_row *row);
    /* Until now the batches of a loop without optimizer were emitted as steps (STEP_INFERENCE), but
     * an optimizer has stepped: they were an evaluation before the training. Remove them. */
    void (*drop_steps)(void *context);
    /* A span with a name (checkpoint, eval, epoch_start, compile, the user's, collectives).
     * other_ns is the part of it inside `other`. */
    void (*span)(void *context, const char *name, int64_t step, uint64_t start_ns, uint64_t end_ns,
                 uint64_t other_ns);
};

struct loader_totals { /* of one loader of this process */
    int64_t iterations, batches, samples;
    uint64_t wait_ns, first_wait_ns, background_ns;
    int trained, evaluated; /* iterations of each kind */
};

int step_builder_new(uint64_t start_ns, uint32_t signals, const struct step_sink *sink,
                     struct step_builder **ret_builder);
void step_builder_free(struct step_builder *builder); /* takes NULL */

/* The text of a name that records refer to; to be set before the records are fed. */
int step_builder_name(struct step_builder *builder, uint32_t id, const char *name);
void step_builder_signals(struct step_builder *builder, uint32_t signals);

/* Feeds the records of one drain. Those of one thread come ordered by end time; those of several
 * threads need not be. */
int step_builder_feed(struct step_builder *builder, const struct ring_record *records, int count);

/* Emits what is pending: the last step, an unfinished inference batch. */
int step_builder_end(struct step_builder *builder, uint64_t end_ns);

int64_t step_builder_steps(const struct step_builder *builder);   /* emitted so far */
int64_t step_builder_step_at(const struct step_builder *builder); /* the current step */
/* NULL: never used. */
const struct loader_totals *step_builder_loader(const struct step_builder *builder, uint32_t id);

#endif
