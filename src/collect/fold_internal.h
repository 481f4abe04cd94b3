/* fold_internal.h: what the files of fold share. Nobody else includes it.
 *
 *     fold_feed ──► pending records, ordered by end time ──► fold.c finds where segments end
 *                                                                │
 *       fold_credit.c  which iterations train, which evaluate  ◄─┤  once per record, in order
 *       fold_paint.c   one segment -> ns per phase             ◄─┤  once the iterations are judged
 *       fold_round.c   segments -> steps (rounds of optimizers) ◄┘
 *
 * pending:   head ─► [ segments that wait for judgement ][ the open segment ][ not yet scanned ]
 *                      queue[0] queue[1] ...               segment_from        scan
 */
#ifndef LEAT_COLLECT_FOLD_INTERNAL_H
#define LEAT_COLLECT_FOLD_INTERNAL_H

#include "collect/fold.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    /* A segment longer than this is painted in parts, so that a process that never steps, or an
     * evaluation of a million batches, takes a bounded amount of memory (3 MiB). */
    FOLD_PENDING_MOST = 65536,
    FOLD_ITERATIONS = 256, /* iterators alive at a time; the one longest unused makes room */
    FOLD_QUEUE = 8,        /* segments that may wait for the judgement of an iteration */
    FOLD_OPTIMIZERS = 4096,
    /* Steps that the first leat.step() may take back: those that were ended by optimizers within
     * what the script calls its first step. More than that is a phase of its own. */
    FOLD_EARLY_STEPS = 16
};

struct pending {
    struct rec rec;
    uint64_t order; /* of arrival: breaks ties of equal end times */
    int32_t tid;
    int16_t iteration; /* index into iterations, set by fold_credit; -1 before */
    bool told;         /* its span was given out */
};

/* One iterator over a loader. */
struct iteration {
    bool used, trains, background;
    uint32_t loader, serial;
    int16_t parent;          /* it is fetched from inside the fetches of that one; -1: none */
    uint8_t counted;         /* in its loader's totals: 0, 1 as trained, 2 as evaluated */
    bool first_fetched;      /* the first batch came */
    uint64_t last_use;       /* order of its last record */
    uint32_t fetched;        /* batches since the last backward */
    bool nograd, ended;      /* all of those without gradients; END came after the last of them */
    uint64_t shared_at;      /* crediting event that gave it a shared credit; 0: none */
    uint32_t shared_fetched; /* batches it had then */
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
    bool undecided;   /* an iteration in it is still to be judged ... */
    uint64_t credits; /* ... by a crediting event after this one */
    struct id_list optimizers;
};

/* What the gaps between spans are at the moment: carried over where a segment is cut. */
struct gap_state {
    bool forward;   /* else other */
    bool arrived;   /* a batch came since the segment started or since the last backward */
    bool evaluates; /* an evaluation was going on at the cut */
};

struct paint_job {
    size_t from, to;
    int32_t tid;
    uint64_t t0_ns, t1_ns;
    uint64_t since_ns; /* where the segment began: named spans from before it enclose steps */
    bool all_train;    /* nothing is an evaluation: inference */
    bool find_start;   /* the first segment: t0_ns is where the training is seen to begin */
    bool provisional;  /* it may be painted again: say nothing of the start of epochs */
    int64_t step;      /* the number for spans */
    struct gap_state *gap;
};

enum name_class { NAME_NONE, NAME_USER, NAME_CHECKPOINT, NAME_EVAL, NAME_PHASE };

struct fold_scratch { /* of fold_paint.c, kept to save allocations */
    void *spans, *background, *evals, *turns, *frames;
    size_t spans_cap, background_cap, evals_cap, turns_cap, frames_cap;
};

struct fold {
    uint64_t start_ns;
    uint32_t signals;
    struct fold_sink sink;

    char names[REC_NAMES][REC_NAME_BYTES];
    uint8_t name_class[REC_NAMES];
    uint8_t name_phase[REC_NAMES];

    /* Records. */
    struct pending *pending;
    size_t pending_cap, count, head, segment_from, scan, credited;
    uint64_t orders;
    uint64_t newest_ns, complete_ns; /* newest end seen; everything up to the other has arrived */
    int32_t first_tid;
    bool any_tid, many_tids, ending;

    /* The training thread and its open segment. */
    bool trains; /* an optimizer (or leat.step) was seen: inference is over */
    bool explicit_steps, saw_backward, saw_optimizer;
    bool has_tid, started; /* started: segment_ns is set */
    int32_t tid;
    size_t own_records;          /* of the training thread in the open segment */
    uint64_t segment_ns, cut_ns; /* start of the open segment; up to where it was painted */
    uint64_t boundary_ns;        /* end of the last one found */
    struct tally partial;        /* of a segment painted in parts */
    struct gap_state gap;
    struct id_list nested; /* optimizers that stepped inside the backward under way */
    uint64_t nested_ns;    /* start of the last of them */
    struct segment queue[FOLD_QUEUE];
    size_t queued;
    uint64_t eval_from_ns, eval_to_ns; /* evaluation not told yet, still growing */
    bool eval_held;

    /* Iterations. */
    struct iteration iterations[FOLD_ITERATIONS];
    size_t iteration_count;
    uint64_t credits;       /* crediting events so far */
    bool credited_backward; /* the open segment had one */
    int16_t last_iteration;
    uint64_t last_t0_ns, last_t1_ns;
    int32_t last_tid;
    struct fold_loader loaders[REC_LOADERS];
    bool loader_used[REC_LOADERS];

    /* Rounds. */
    struct tally round, doubt, early;
    bool into_doubt, early_settled;
    struct id_list doubt_ids;
    uint64_t round_number;
    uint32_t round_leader, last_round_segments;
    struct {
        uint64_t round; /* the round it last stepped in */
        uint64_t with;  /* leaders (modulo 64) of rounds it was confirmed to be part of */
    } optimizers[FOLD_OPTIMIZERS];

    /* Inference: the batch now worked on. */
    bool batch_open, iter_seen;
    bool batch_nograd, batch_backward; /* asked for without gradients; a backward came since */
    int64_t given_nograd;              /* of the batches given out, how many were asked for so */
    size_t batch_from;
    uint64_t batch_ns, arrival_ns, iter_ns, last_tail_ns;

    int64_t given; /* steps */
    struct fold_scratch scratch;
};

static inline uint64_t fold_relative(const struct fold *f, uint64_t t_ns)
{
    return t_ns > f->start_ns ? t_ns - f->start_ns : 0;
}

/* fold_credit.c: passes over pending records up to `to`, each once. */
void fold_credit(struct fold *f, size_t to);
void fold_credit_end(struct fold *f, bool by_optimizer); /* of a segment */
bool fold_undecided(const struct fold *f);
bool fold_iteration_trains(const struct fold *f, int index);
void fold_iteration_count(struct fold *f, int index, bool trains);
int fold_iteration_root(const struct fold *f, int index);

/* fold_paint.c: adds the phases of pending [from, to) to the tally. Never fails: without memory the
 * whole range is `other`. */
void fold_paint(struct fold *f, const struct paint_job *job, struct tally *tally);
void fold_eval_flush(struct fold *f);
void fold_scratch_done(struct fold_scratch *scratch);

/* fold_round.c */
void fold_round_begin(struct fold *f, const struct segment *segment);
void fold_round_add(struct fold *f, const struct segment *segment, const struct tally *tally);
void fold_round_flush(struct fold *f);
void fold_give(struct fold *f, const struct tally *tally);
void fold_tally_add(struct tally *sum, const struct tally *part);
int fold_ids_add(struct id_list *list, uint32_t id);

#endif
