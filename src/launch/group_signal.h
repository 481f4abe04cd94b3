/* group_signal.h: was a signal sent to leat's whole process group, or to leat alone?
 *
 * The training shares leat's process group, so that a terminal and its shell treat both as one job
 * and a SIGKILL to the group ends both. A signal to the group (Ctrl-C, timeout(1), killpg) has
 * reached the training too; a signal to leat alone (`kill PID`, Popen.terminate()) must be passed
 * on. The receiver cannot distinguish the two, so a helper process in the group blocks all signals
 * and does nothing: a signal that is also pending there was sent to the group.
 *
 *     leat ── "SIGTERM?" ──► helper: is it pending? removes it, and answers 1 or 0
 *
 * Simpler ways were refused. si_code distinguishes a terminal (SI_KERNEL) from kill(2), but not
 * kill(2) to a process from kill(2) to a group: `timeout 2h leat run` and killpg would reach a
 * training's SIGTERM or SIGUSR1 handler twice. A process group of its own for the training would
 * survive a SIGKILL to leat's group, and leat would have to do a shell's job control (Ctrl-Z, fg,
 * bg).
 *
 * The helper holds only its end of a socket, and exits when leat's end is closed. */
#ifndef LEAT_LAUNCH_GROUP_SIGNAL_H
#define LEAT_LAUNCH_GROUP_SIGNAL_H

#include <sys/types.h>

struct group_signal {
    int fd; /* -1: no helper could be started */
    pid_t pid;
};

void group_signal_open(struct group_signal *helper);
void group_signal_close(struct group_signal *helper);

/* 1 when the group got signal `number` since the last call for it, 0 when not, -1 without a helper.
 */
int group_signal_seen(struct group_signal *helper, int number);

#endif
