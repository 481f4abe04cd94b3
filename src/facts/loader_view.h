/* loader_view.h: all that is known of the loader that feeds a rank, gathered once: its workers, the
 * parts of making a batch, lines of code, and the machine meanwhile. */
#ifndef LEAT_FACTS_LOADER_VIEW_H
#define LEAT_FACTS_LOADER_VIEW_H

#include "facts/facts.h"

/* The loader that feeds the training (or the inference) of a rank: of those that are not for
 * evaluation, the one that was waited for longest. NULL when none was seen. */
const struct loader_fact *feeding_loader(const struct facts *facts, int rank);

/* Ratios are NaN where nothing was sampled; times are per step unless noted otherwise. */
struct loader_view {
    const struct facts *facts;
    const struct rank_facts *rank;
    const struct loader_fact *loader;
    double input_ms, wall_ms, rest_ms; /* rest: all but the input */
    double from_ms, to_ms;             /* kept steps */
    double batches_per_step;
    /* the machine */
    double cores;           /* that the run may use */
    double cores_left;      /* that other programs leave to it */
    double idle_cores;      /* NaN: not sampled */
    double foreign_cores;   /* that other programs use */
    double foreign_threads; /* threads of other programs, running or ready to run */
    double stolen;          /* share of CPU time that a hypervisor took for other machines */
    /* workers of this loader */
    size_t worker_count; /* processes seen */
    double worker_busy;  /* share of their lifetime in which they made batches */
    double worker_cpu;   /* cores that one worker keeps busy */
    double worker_delay; /* share of time in which its main thread was ready, but had no core */
    double main_cpu, main_delay; /* the same of the training process */
    int workers_mixed;           /* may include workers of other loaders */
    /* per batch */
    double make_ms; /* fetch and collate */
    struct part_stats sample, fetch, collate, pickle, unpickle, pin;
    /* lines: shares are of the time in which the line profiler saw batches being made */
    struct line_fact *lines; /* owned */
    size_t line_count;
    double line_ms, read_share, decode_share, blocked_share; /* NaN: no line was seen */
    double sample_read, sample_decode; /* of the time in which it saw samples being made */
};

/* Gathers the rest; facts, rank, loader and input_ms are set. 0 or -ENOMEM. */
int loader_view_fill(struct loader_view *view);
void loader_view_done(struct loader_view *view);

/* The costliest line of a part that no other line called, user code before library code; NULL: no
 * line was sampled. */
const struct line_fact *loader_view_top_line(const struct loader_view *view, enum leat_part part);
/* Its share of the making time. */
double loader_view_line_share(const struct loader_view *view, const struct line_fact *line);

/* Bytes of a batch that go through the pipe from worker to training; NaN: not known. */
double loader_view_pipe_bytes(const struct loader_view *view);

#endif
