/* group_witness.c: see group_witness.h. */
#include "group_witness.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 200 }; /* a witness that is slower than this is no help */

static void watch(int fd) __attribute__((noreturn));
static void watch(int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "leat-witness");
    /* It must keep nobody's pipe open: a reader of leat's output waits for its end. */
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

void group_witness_open(struct group_witness *witness)
{
    int ends[2];
    *witness = (struct group_witness){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        watch(ends[1]);
    }
    close(ends[1]);
    if (pid > 0)
        *witness = (struct group_witness){.fd = ends[0], .pid = pid};
    else
        close(ends[0]);
}

void group_witness_close(struct group_witness *witness)
{
    if (witness->fd < 0)
        return;
    close(witness->fd);
    waitpid(witness->pid, NULL, 0);
    witness->fd = -1;
}

int group_witness_saw(struct group_witness *witness, int number)
{
    unsigned char question = (unsigned char)number, answer = 0;
    if (witness->fd < 0)
        return -1;
    struct pollfd answered = {witness->fd, POLLIN, 0};
    if (send(witness->fd, &question, 1, MSG_NOSIGNAL) == 1 && poll(&answered, 1, ANSWER_MS) == 1 &&
        read(witness->fd, &answer, 1) == 1)
        return answer;
    kill(witness->pid, SIGKILL); /* an answer that came late would be taken for the next one's */
    group_witness_close(witness);
    return -1;
}
