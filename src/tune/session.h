/* session.h: the protocol between leat and the user's process: lines of JSON in both directions.
 *
 *     hello ─► (step) ─► samples ─► row, row, row ... ─► cached batch ─► model ─► end
 *
 * This code uses no descriptor and no clock: the caller passes lines, the time and the
 * memory of the process tree, and does what `action` says. Lines come from a process that
 * runs foreign code: invalid ones are ignored.
 */
#ifndef LEAT_TUNE_SESSION_H
#define LEAT_TUNE_SESSION_H

#include "tune/rate.h"
#include "tune/tune.h"

enum session_stage {
    SESSION_HELLO,
    SESSION_STEP, /* with a GPU: one step of the script shows how it copies batches */
    SESSION_SAMPLES,
    SESSION_ROW,
    SESSION_CACHED,
    SESSION_MODEL,
    SESSION_END
};

enum session_action {
    SESSION_NO_ACTION,
    SESSION_INTERRUPT, /* the current measurement hangs: send SESSION_SIGNAL */
    SESSION_KILL       /* finished, or SESSION_SIGNAL had no effect: kill the process tree */
};
#define SESSION_SIGNAL SIGUSR2

struct session {
    struct tune_result result;
    enum session_stage stage;
    int has_model; /* a script with a training loop, which can be given a cached batch */
    /* Set by session_*, read by the caller. */
    struct str output; /* lines to send; the caller empties it */
    enum session_action action;
    /* Of the current request. */
    struct tune_config config;
    struct rate rate;
    uint64_t start_ns, stage_start_ns, last_line_ns; /* hello; request sent; last line */
    int stepping;                                    /* the script has its first batch */
    int stopping;                                    /* "stop" was sent: the result will come */
    int interrupted_row; /* SESSION_INTERRUPT was requested; SESSION_KILL is next */
    int64_t row_memory;  /* -1 */
    char row_error[200]; /* leat's reason for ending the row; "" */
};

void session_init(struct session *s, const struct tune_limits *limits, int has_model);
void session_done(struct session *s);
void session_take_line(struct session *s, const char *line, size_t bytes, uint64_t now_ns);
void session_tick(struct session *s, uint64_t now_ns);
void session_memory(struct session *s, int64_t tree_bytes);
/* Ctrl-C: keeps the rows so far, starts nothing. */
void session_stop(struct session *s, uint64_t now_ns);
/* The process has ended; `how` is how. */
void session_process_ended(struct session *s, const char *how, uint64_t now_ns);
/* "num_workers=4 prefetch_factor=2, 1234 samples/s so far; about 12s left" */
void session_progress(const struct session *s, uint64_t now_ns, struct str *out);

#endif
