/* group_signal.c: see group_signal.h. */
#include "launch/group_signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 200 };

static void run_helper(int fd) __attribute__((noreturn));
static void run_helper(int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "leat-signals");
    /* Close all else: a reader of leat's output waits until the last writer has closed the pipe. */
    if (dup2(fd, 0) < 0 || close_range(1, ~0u, 0) < 0)
        _exit(1);
    unsigned char number, answer;
    while (read(0, &number, 1) == 1) {
        sigset_t one;
        struct timespec at_once = {0, 0};
        sigemptyset(&one);
        sigaddset(&one, number);
        answer = sigtimedwait(&one, NULL, &at_once) == number;
        if (write(0, &answer, 1) != 1)
            break;
    }
    _exit(0);
}

void group_signal_open(struct group_signal *helper)
{
    int ends[2];
    *helper = (struct group_signal){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        run_helper(ends[1]);
    }
    close(ends[1]);
    if (pid > 0)
        *helper = (struct group_signal){.fd = ends[0], .pid = pid};
    else
        close(ends[0]);
}

void group_signal_close(struct group_signal *helper)
{
    if (helper->fd < 0)
        return;
    close(helper->fd);
    waitpid(helper->pid, NULL, 0);
    helper->fd = -1;
}

int group_signal_seen(struct group_signal *helper, int number)
{
    unsigned char question = (unsigned char)number, answer = 0;
    if (helper->fd < 0)
        return -1;
    struct pollfd answered = {helper->fd, POLLIN, 0};
    if (send(helper->fd, &question, 1, MSG_NOSIGNAL) == 1 && poll(&answered, 1, ANSWER_MS) == 1 &&
        read(helper->fd, &answer, 1) == 1)
        return answer;
    kill(helper->pid, SIGKILL); /* a late answer would be read as that to the next question */
    group_signal_close(helper);
    return -1;
}
