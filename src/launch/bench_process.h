/* bench_process.h: runs the user's script for `leat bench` and carries a session to it.
 *
 *     leat ──run_process──► the script; LEAT_BENCH in its environment names a socket
 *       ▲  the first process that iterates its training loader connects; the socket is then closed
 *       └─ lines to and from the session; its wishes (wake, kill) are carried out here
 *
 * The script is a means to an end here, not the user's training: it is ended when all is measured.
 * leat is the reaper of everything below it, so that no worker outlives it, whoever its parent was.
 */
#ifndef LEAT_CLI_BENCH_PROCESS_H
#define LEAT_CLI_BENCH_PROCESS_H

#include "run_process.h"
#include "tune/session.h"

struct bench_process_options {
    int quiet;    /* the script's output goes nowhere; else to stderr, stdout being leat's */
    int progress; /* say on stderr what is going on */
    const char *inject_dir;
};

/* Returns 0 with *ret_end when the script could be run, whatever came of it; the session then holds
 * what was measured. *ret_signal is the signal that ended it early, or 0. */
int bench_process(char **argv, const struct bench_process_options *options, struct session *session,
                  struct run_process_end *ret_end, int *ret_signal, struct leat_err *err);

#endif
