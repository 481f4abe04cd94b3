/* run_process.h: runs the training as a child, receives its hellos, and passes signals on.
 *
 *     leat ──fork──► the command, with LEAT_SOCKET, PYTHONPATH, LD_PRELOAD in its environment
 *       ▲  socket (hello + memfd)  ◄── each Python process of the run, at its start
 *       ▲  timer, every 100 ms     ──► tick: drain rings, sample /proc
 *       ▲  signals                 ──► passed on to the training, once each
 *
 * The child shares leat's terminal, process group, stdin, stdout and stderr. A signal to the whole
 * group (Ctrl-C on a terminal, timeout(1), `kill 0`) has reached the child too and is not sent
 * again (group_signal.h); a signal to leat alone is passed on, unless the training itself sent it.
 */
#ifndef LEAT_LAUNCH_RUN_PROCESS_H
#define LEAT_LAUNCH_RUN_PROCESS_H

#include "base/err.h"

#include <sys/types.h>

struct run_process_events {
    void *context;
    int (*started)(void *context, pid_t pid); /* a failure does not end the training */
    /* Takes ownership of the descriptor. NULL: nothing is recorded, there is no socket. */
    void (*hello)(void *context, int memfd, pid_t pid);
    void (*tick)(void *context);
    /* The rest may be NULL. A descriptor of the caller to wait on too, or -1, and what to call when
     * it is readable. */
    int (*descriptor)(void *context);
    void (*readable)(void *context);
    /* 1 when the caller handles the signal: it is then not passed on. */
    int (*takes_signal)(void *context, int number);
    const char *probe; /* a library for LD_PRELOAD (probe_preload.h); NULL: none */
};

struct run_process_end {
    int exit_status; /* -1 when it was killed */
    int signal;      /* -1 when it exited */
    int interrupted; /* SIGINT arrived while it ran */
};

/* Blocks the signals that are passed on, and those leat handles as error codes (SIGPIPE, SIGXFSZ: a
 * full disk does not kill leat), and raises leat's soft limit of file size (ulimit -f) to the hard
 * one, so that run.db is complete. Call it first. The command gets the previous mask and limit. */
void run_process_shield(void);

/* `inject_dir` goes to the front of PYTHONPATH; NULL leaves the environment alone. Returns 0 with
 * *ret_end when the command ran, or a negative errno with a sentence when it could not be started.
 * If the socket cannot be made, the command runs without being recorded: the sentence is then in
 * `err` and the result still 0. */
int run_process(char **argv, const char *inject_dir, const struct run_process_events *events,
                struct run_process_end *ret_end, struct leat_err *err);

/* Ends leat as the child ended: with its exit status, or by the same signal. */
void run_process_exit_like(const struct run_process_end *end) __attribute__((noreturn));

#endif
