/* step_builder_internal.h: what the files of the step builder share. No other file includes it.
 *
 * The step builder has to find steps in records of which none marks the end of a step, and time per
 * phase in spans that are nested and come from several threads. It works in four stages:
 *
 *     step_builder.c      records, sorted by end time -> segments, or batches of an inference
 *     step_iterations.c   for each iteration over a loader: does it train, or evaluate?
 *     step_phases.c       a segment -> time per phase
 *     step_rounds.c       segments -> steps
 *
 * A segment is what the training thread does up to the step of an optimizer. A step is one round of
 * the optimizers: one segment or several. The records that are still needed are in `pending`; new
 * ones are appended at its end, and finished segments are removed from its start:
 *
 *     | queue[0] | queue[1] | ... | the open segment | not yet scanned |
 *     head                        segment_from       scan              count
 *
 * The states of a process, and what a record of the training thread does in each:
 *
 *     state            FETCH, ITER          BACKWARD                OPTIMIZER         STEP
 *     ---------------  -------------------  ----------------------  ----------------  ------------
 *     no batch         opens a batch        as below                ends a segment;   as OPTIMIZER,
 *       !batch_open                                                 -> training       -> explicit
 *     inference        emits the batch as   from now on, a batch    drops the steps   as OPTIMIZER,
 *       batch_open     a step, opens the    requested without       emitted so far;   -> explicit
 *                      next                 gradients is not a      ends a segment;
 *                                           step, unless a          -> training
 *                                           backward follows it
 *     training         in the open segment  ends a segment, if      ends a segment    ends it;
 *       trains                              optimizers stepped in                     -> explicit
 *                                           it
 *     explicit         in the open segment  in the open segment     in the open       ends it
 *       explicit_steps                                              segment
 *
 * A segment that has ended stays in `queue` while a later backward may still change which of its
 * iterations train. Then its phases are added up, and step_rounds.c decides which step it is part
 * of. When an optimizer is new in a round, that is decided one segment later; until then the
 * segment is in doubt:
 *
 *     round               optimizer of the segment        effect
 *     ------------------  ------------------------------  --------------------------------------
 *     empty               any                             starts the round
 *     has segments        stepped in this round before    ends the round and starts the next
 *     has segments        known to belong to this round   joins the round
 *     has segments        new in this round               is in doubt
 *     one is in doubt     that of the one in doubt        ends the round without the one in doubt,
 *                                                         which starts the next; then as above
 *     one is in doubt     another                         the one in doubt joins the round; then
 *                                                         as above
 *
 * A round that has ended is emitted as a step.
 * After leat.step() was called (explicit) only its calls end steps.
 */
#ifndef LEAT_COLLECT_STEP_BUILDER_INTERNAL_H
#define LEAT_COLLECT_STEP_BUILDER_INTERNAL_H

#include "collect/step_builder.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    /* The phases of a segment with more records than this are added up in parts, so that a process
     * that never steps, or an evaluation of a million batches, needs at most 3 MiB. */
    MAX_PENDING = 65536,
    MAX_ITERATIONS = 256, /* iterators in use at a time; the least recently used is replaced */
    MAX_QUEUED = 8,       /* segments that wait until their iterations are decided */
    MAX_OPTIMIZERS = 4096,
    /* Optimizers may have ended steps before the first leat.step() of a script is seen. Up to this
     * number they are parts of the script's first step, and are joined into one. More than this
     * number stay steps. */
    EARLY_STEPS = 16
};

struct pending {
    struct rec rec;
    uint64_t order; /* in which it came; sorts records with the same end time */
    int32_t tid;
    int16_t iteration; /* index into iterations; -1: not set yet, see iterations_credit */
    bool reported;     /* its span was reported */
};

/* One iterator over a loader. A crediting event is a backward (or, without one, the end of a
 * segment) that shows which iterations train: step_iterations.c. */
struct iteration {
    bool used, trains, background;
    uint32_t loader, serial;
    int16_t parent;          /* the iteration whose fetches contain its fetches; -1: none */
    uint8_t counted;         /* in its loader's totals: 0 not yet, 1 as trained, 2 as evaluated */
    bool first_fetched;      /* the first batch came */
    uint64_t last_use;       /* order of its last record */
    uint32_t fetched;        /* batches since the last backward */
    bool nograd;             /* all of them were requested without gradients */
    bool ended;              /* the loader has ended after them */
    uint64_t shared_at;      /* the crediting event in which it shared the credit; 0: none */
    uint32_t shared_fetched; /* `fetched` in that event */
};

/* Sums over a segment or a step. */
struct tally {
    uint64_t wall_ns, phase_ns[PHASES];
    uint64_t end_ns; /* absolute */
    int64_t samples;
    bool samples_unknown;
    uint32_t micro_steps, records, flags, segments;
};

struct id_list {
    uint32_t *ids; /* owned */
    size_t count, capacity;
};

struct segment {
    size_t from, to; /* in pending */
    uint64_t end_ns;
    int32_t tid;
    bool is_step;     /* ended by leat.step() */
    bool undecided;   /* the next crediting event may change which of its iterations train */
    uint64_t credits; /* crediting events up to its end */
    struct id_list optimizers;
};

/* Which phase the time between two spans is. Kept when a long segment is cut into parts. */
struct gap_state {
    bool forward;   /* else other */
    bool arrived;   /* a batch came since the segment started or since the last backward */
    bool evaluates; /* the cut is inside an evaluation */
};

/* What step_phases.c is asked to add up: the records [from, to) and the time [t0_ns, t1_ns). */
struct phase_job {
    size_t from, to;
    int32_t tid;
    uint64_t t0_ns, t1_ns;
    uint64_t since_ns; /* start of the segment; a named span from before it encloses steps */
    bool all_train;    /* nothing is an evaluation: inference */
    bool find_start;   /* the first segment: t0_ns is where the training begins */
    bool provisional;  /* it may be repeated: do not report starts of epochs */
    int64_t step;      /* the step number that is reported with spans */
    struct gap_state *gap;
};

/* What a name that records refer to is: the user's, or one with a meaning for the phases. */
enum name_class { NAME_NONE, NAME_USER, NAME_CHECKPOINT, NAME_EVAL, NAME_PHASE };

struct phases_scratch { /* arrays of step_phases.c, kept from segment to segment: no allocation */
    void *spans, *background, *evals, *turns, *frames;
    size_t spans_cap, background_cap, evals_cap, turns_cap, frames_cap;
};

struct step_builder {
    /* Set once. */
    uint64_t start_ns;
    struct step_sink sink;

    /* What the hooks can see, and the names that records refer to. */
    uint32_t signals;
    char names[REC_NAMES][REC_NAME_BYTES];
    uint8_t name_class[REC_NAMES];
    uint8_t name_phase[REC_NAMES];

    /* Pending records (step_builder.c): the indices of the drawing above; records before `credited`
     * have been through iterations_credit. */
    struct pending *pending; /* owned */
    size_t pending_cap, count, head, segment_from, scan, credited;
    uint64_t orders;      /* records taken so far */
    uint64_t newest_ns;   /* the latest end of a record */
    uint64_t complete_ns; /* no record that ended before this can still come */
    int32_t first_tid;
    bool any_tid, many_tids, ending;

    /* The state of the process: the table above. */
    bool trains; /* an optimizer or leat.step() was seen: no inference */
    bool explicit_steps, saw_backward, saw_optimizer;
    bool has_tid, started; /* started: segment_ns is set */
    int32_t tid;           /* the training thread */
    int64_t emitted;       /* steps */

    /* The open segment (step_builder.c). */
    size_t own_records;          /* of the training thread */
    uint64_t segment_ns, cut_ns; /* its start; its phases are added up to here */
    uint64_t boundary_ns;        /* end of the last segment found */
    struct tally partial;        /* of a segment that was cut */
    struct gap_state gap;
    struct id_list nested; /* optimizers that stepped inside the current backward */
    uint64_t nested_ns;    /* start of the last of them */

    /* Segments that have ended and whose iterations are not decided. */
    struct segment queue[MAX_QUEUED];
    size_t queued;

    /* Iterations and loaders (step_iterations.c). */
    struct iteration iterations[MAX_ITERATIONS];
    size_t iteration_count;
    uint64_t credits;       /* crediting events so far */
    bool credited_backward; /* one of them was a backward of the open segment */
    int16_t last_iteration; /* of the last fetch: its index, times and thread */
    uint64_t last_t0_ns, last_t1_ns;
    int32_t last_tid;
    struct loader_totals loaders[REC_LOADERS];
    bool loader_used[REC_LOADERS];

    /* Rounds of optimizers (step_rounds.c): the table above. */
    struct tally round, doubt, early;
    bool into_doubt, early_settled;
    struct id_list doubt_ids;
    uint64_t round_number;
    uint32_t round_leader, last_round_segments;
    struct {
        uint64_t round; /* the round it last stepped in */
        uint64_t with;  /* leaders (modulo 64) of rounds that it belongs to */
    } optimizers[MAX_OPTIMIZERS];

    /* Inference (step_builder.c): the current batch. */
    bool batch_open, iter_seen;
    bool batch_nograd, batch_backward; /* requested without gradients; a backward came since */
    int64_t emitted_nograd;            /* emitted batches that were requested without gradients */
    size_t batch_from;
    uint64_t batch_ns, arrival_ns, iter_ns, last_tail_ns;

    /* Evaluations and memory of step_phases.c. */
    uint64_t eval_from_ns, eval_to_ns; /* not reported yet: it may still grow */
    bool eval_held;
    struct phases_scratch scratch;
};

static inline uint64_t step_relative_ns(const struct step_builder *sb, uint64_t t_ns)
{
    return t_ns > sb->start_ns ? t_ns - sb->start_ns : 0;
}

/* step_iterations.c. iterations_credit reads the records before `to` that it has not read yet.
 * iterations_end_segment counts the end of a segment without a backward as a crediting event. */
void iterations_credit(struct step_builder *sb, size_t to);
void iterations_end_segment(struct step_builder *sb, bool by_optimizer);
bool iterations_undecided(const struct step_builder *sb); /* a later event may change one */
bool iteration_trains(const struct step_builder *sb, int index);
/* Counts it in its loader's totals as a training or an evaluation. */
void iteration_judge(struct step_builder *sb, int index, bool trains);
int iteration_root(const struct step_builder *sb, int index); /* the outermost of its parents */

/* step_phases.c: adds the phases of pending [from, to) to the tally. Never fails: without memory
 * the whole range is `other`. */
void phases_add(struct step_builder *sb, const struct phase_job *job, struct tally *tally);
void phases_report_eval(struct step_builder *sb);
void phases_scratch_done(struct phases_scratch *scratch);

/* step_rounds.c. rounds_begin is called before the phases of a segment are added up, rounds_add
 * after. */
void rounds_begin(struct step_builder *sb, const struct segment *segment);
void rounds_add(struct step_builder *sb, const struct segment *segment, const struct tally *tally);
void rounds_flush(struct step_builder *sb);
void step_emit(struct step_builder *sb, const struct tally *tally);
void tally_add(struct tally *sum, const struct tally *part);
int id_list_add(struct id_list *list, uint32_t id);

#endif
