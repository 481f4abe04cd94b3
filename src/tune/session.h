/* session.h: the talk with the user's process: lines of JSON in, lines of JSON out.
 *
 *     hello ─► (step) ─► samples ─► row, row, row ... ─► cached batch ─► model ─► end
 *
 * No descriptor and no clock is touched here: the caller brings lines, the time and the memory of
 * the process tree, and carries out what `session_wish` asks for. Lines come from a process that
 * runs foreign code: whatever does not fit is passed over.
 */
#ifndef LEAT_TUNE_SESSION_H
#define LEAT_TUNE_SESSION_H

#include "tune/rate.h"
#include "tune/tune.h"

enum session_stage {
    SESSION_HELLO,
    SESSION_STEP, /* where there is a GPU: the script makes a step, and its copies are seen */
    SESSION_SAMPLES,
    SESSION_ROW,
    SESSION_CACHED,
    SESSION_MODEL,
    SESSION_END
};

enum session_wish {
    WISH_NOTHING,
    WISH_INTERRUPT, /* what the process does now is hopeless: SESSION_SIGNAL wakes it */
    WISH_KILL       /* it is over, or it cannot be woken: end the process and all below it */
};
#define SESSION_SIGNAL SIGUSR2

struct session {
    struct tune_result result;
    enum session_stage stage;
    int has_model; /* there is a script with a loop, to be given a cached batch */
    /* Set by session_*, read by the caller. */
    struct str output; /* lines to send; the caller empties it */
    enum session_wish wish;
    /* Of the order under way. */
    struct tune_config config;
    struct rate rate;
    uint64_t start_ns, began_ns, heard_ns; /* hello; order sent; last word */
    int stepping;                          /* the script has its first batch */
    int stopping;                          /* told to stop: the result is on its way */
    int interrupted_row;                   /* WISH_INTERRUPT was given; then WISH_KILL */
    int64_t row_memory;                    /* -1 */
    char row_error[200];                   /* leat's own word on why the row ended; "" */
};

void session_init(struct session *s, const struct tune_limits *limits, int has_model);
void session_done(struct session *s);
void session_hear(struct session *s, const char *line, size_t bytes, uint64_t now_ns);
void session_tick(struct session *s, uint64_t now_ns);
void session_memory(struct session *s, int64_t tree_bytes);
/* Ctrl-C: what is known stays, nothing more is begun. */
void session_stop(struct session *s, uint64_t now_ns);
/* The process is gone. */
void session_gone(struct session *s, const char *how, uint64_t now_ns);
/* "num_workers=4 prefetch_factor=2, 1234 samples/s so far; about 12s left" */
void session_progress(const struct session *s, uint64_t now_ns, struct str *out);

#endif
