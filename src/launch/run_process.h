/* run_process.h: runs the training and listens to it, without standing in its way.
 *
 *     leat ──fork──► the command, with LEAT_SOCKET, PYTHONPATH, LD_PRELOAD in its environment
 *       ▲  socket (hello + memfd)  ◄── each Python process of the run, at its start
 *       ▲  timer, every 100 ms     ──► on_tick: drain rings, sample /proc
 *       ▲  signals                 ──► passed on when they were meant for the training
 *
 * The child shares leat's terminal, process group, stdin, stdout and stderr. Signals:
 *   - what reaches the whole group (Ctrl-C on a terminal, timeout(1), `kill 0`) has reached the
 *     child as well: it is not sent twice (group_witness.h tells);
 *   - what somebody sends to leat alone is passed on, unless the training itself sent it.
 */
#ifndef LEAT_CLI_RUN_PROCESS_H
#define LEAT_CLI_RUN_PROCESS_H

#include "base/err.h"

#include <sys/types.h>

struct run_process_events {
    void *context;
    int (*started)(void *context, pid_t pid); /* negative: only noted, the training goes on */
    /* Takes the descriptor. NULL: nobody records, there is no socket. */
    void (*hello)(void *context, int memfd, pid_t pid);
    void (*tick)(void *context);
    /* The rest may be NULL. A descriptor of the caller's own to wait on too, or -1, and what to do
     * when it can be read. */
    int (*descriptor)(void *context);
    void (*readable)(void *context);
    /* 1 when the caller takes a signal, which is then not passed on; else 0. */
    int (*takes_signal)(void *context, int number);
    const char *probe; /* a library for LD_PRELOAD (probe_preload.h); NULL: none */
};

struct run_process_end {
    int exit_status; /* -1 when it was killed */
    int signal;      /* -1 when it exited */
    int interrupted; /* SIGINT came by while it ran */
};

/* Blocks the signals that are the training's, or that leat wants as error codes (SIGPIPE, SIGXFSZ).
 * Call it first: from then on a full disk cannot kill leat. The command gets the mask from before.
 */
void run_process_shield(void);

/* `inject_dir` goes to the front of PYTHONPATH; NULL leaves the environment alone. Returns 0 with
 * *ret_end when the command ran, or a negative errno with a sentence when it could not be started.
 * A socket that cannot be made costs the recording, not the run: the sentence is then in `err` and
 * the result still 0. */
int run_process(char **argv, const char *inject_dir, const struct run_process_events *events,
                struct run_process_end *ret_end, struct leat_err *err);

/* Ends leat as its child ended: same exit status, or death by the same signal. Does not return. */
void run_process_exit_like(const struct run_process_end *end) __attribute__((noreturn));

#endif
