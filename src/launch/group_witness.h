/* group_witness.h: was a signal sent to leat alone, or to its whole process group?
 *
 * The training shares leat's process group, so that a terminal treats both as one job. A signal to
 * the group (Ctrl-C, timeout(1), `kill 0` in a script) has reached the training as well; one to
 * leat alone (`kill PID`, Popen.terminate()) has not, and must be passed on. The two look the same
 * to their receiver. So a third process sits in the group, the witness: it blocks every signal and
 * does nothing, and a signal that is pending there too was sent to the group.
 *
 *     leat ── "SIGTERM?" ──► witness: is it pending? takes it, and says yes or no
 *
 * The witness holds nothing but its end of a socket, and ends when leat's end is closed, however
 * leat ended. */
#ifndef LEAT_CLI_GROUP_WITNESS_H
#define LEAT_CLI_GROUP_WITNESS_H

#include <sys/types.h>

struct group_witness {
    int fd; /* -1: there is none */
    pid_t pid;
};

void group_witness_open(struct group_witness *witness); /* without one where none can be made */
void group_witness_close(struct group_witness *witness);

/* 1 when the group got signal `number` since it was last asked for, 0 when not, -1 when there is
 * nobody to ask. */
int group_witness_saw(struct group_witness *witness, int number);

#endif
