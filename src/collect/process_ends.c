/* process_ends.c: how recording processes ended, also those that leat did not start.
 *
 * A launcher such as torchrun ends with exit status 1 when a rank was killed. So the first process
 * of a rank that fails is looked at: if a signal killed it, its row and the summary name the rank
 * and the signal. The launcher then ends the other ranks by SIGTERM: they are not named.
 *
 * Only the parent of a process gets its exit status, but /proc has it until the parent has called
 * wait(). leat is woken at the end of the process, and launchers poll, so leat is nearly always the
 * first. If it is not, nothing is named.
 */
#include "collect/collector_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void ends_begin(struct collector *c)
{
    c->ends = epoll_create1(EPOLL_CLOEXEC);
}

void ends_done(struct collector *c)
{
    if (c->ends >= 0)
        close(c->ends);
}

void ends_watch(struct collector *c, struct recording_process *s)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)s->pid};
    s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0); /* Linux 5.3; Docker may refuse it */
    if (s->pidfd >= 0 && epoll_ctl(c->ends, EPOLL_CTL_ADD, s->pidfd, &event) < 0)
        ends_forget(s);
    /* A launcher has started the ranks again. */
    if (s->header.role != LEAT_ROLE_WORKER && recording_process_declared_rank(s) >= 0)
        c->rank_failed = false;
}

void ends_forget(struct recording_process *s)
{
    if (s->pidfd >= 0)
        close(s->pidfd); /* leaves the epoll set */
    s->pidfd = -1;
}

int collector_ends_descriptor(const struct collector *c)
{
    return c->ends;
}

static void read_end(struct collector *c, struct recording_process *s)
{
    int status, rank = s->rank >= 0 ? s->rank : recording_process_declared_rank(s);
    bool known = proc_wait_status(c->proc_root, s->pid, &status) == 0;
    ends_forget(s);
    /* The kind of end of the training command itself is the run's. */
    if (!known || status == 0 || rank < 0 || s->header.role == LEAT_ROLE_WORKER ||
        s->pid == c->options.root_pid || c->rank_failed)
        return;
    c->rank_failed = true;
    c->killed_pid = WIFSIGNALED(status) ? s->pid : 0;
    const char *name = WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : NULL;
    if (name)
        snprintf(c->killed_text, sizeof c->killed_text, "rank %d (process %d) was killed by SIG%s",
                 rank, (int)s->pid, name);
    else
        snprintf(c->killed_text, sizeof c->killed_text,
                 "rank %d (process %d) was killed by signal %d", rank, (int)s->pid,
                 WTERMSIG(status));
}

void collector_read_ends(struct collector *c)
{
    struct epoll_event events[64];
    int count = epoll_wait(c->ends, events, 64, 0);
    for (int i = 0; i < count; i++) {
        struct recording_process *s = recording_process_find(c, (int64_t)events[i].data.u64);
        if (s)
            read_end(c, s);
    }
}

const char *ends_text(const struct collector *c, const struct recording_process *s)
{
    return c->killed_pid && s->pid == c->killed_pid ? c->killed_text : NULL;
}
