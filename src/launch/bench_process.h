/* bench_process.h: runs the user's script for `leat bench` and carries a session to it.
 *
 *     leat ──run_process──► the script; LEAT_BENCH in its environment names a socket
 *       ▲  the first process that iterates its training loader connects; the socket is then closed
 *       └─ lines to and from the session; the actions it requests (interrupt, kill) are done here
 *
 * The script is ended when everything is measured. leat is the subreaper of all processes below it,
 * so that no worker survives, even when its parent has ended.
 */
#ifndef LEAT_LAUNCH_BENCH_PROCESS_H
#define LEAT_LAUNCH_BENCH_PROCESS_H

#include "launch/run_process.h"
#include "tune/session.h"

struct bench_process_options {
    int quiet;    /* discard the script's output; else it goes to stderr (stdout is leat's) */
    int progress; /* show progress on stderr */
    const char *inject_dir;
};

/* Returns 0 with *ret_end when the script could be started; the session then holds what was
 * measured. *ret_signal is the signal that ended it early, or 0. */
int bench_process(char **argv, const struct bench_process_options *options, struct session *session,
                  struct run_process_end *ret_end, int *ret_signal, struct leat_err *err);

#endif
