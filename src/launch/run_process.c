/* run_process.c: see run_process.h. One thread, one poll loop. */
#include "launch/run_process.h"

#include "base/clock.h"
#include "base/path.h"
#include "launch/group_signal.h"
#include "launch/private_socket.h"
#include "launch/probe_preload.h"
#include "launch/python_home.h"
#include "record/layout.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 100,           /* a ring holds 32768 records: 320 000 per second and thread */
    MAX_PENDING_HELLOS = 64, /* accepted connections whose hello has not arrived */
    /* timeout(1) signals its child and then the group: two within this time are one signal. */
    TOGETHER_MS = 5,
    SAME_SIGNAL_MS = 100
};

/* Signals that a user may send to the training. */
static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

struct loop {
    const struct run_process_events *events;
    struct run_process_end end;
    pid_t child;
    struct private_socket listener;
    int signals, timer;
    struct group_signal group;
    uint64_t group_ns[65]; /* when the group last got this signal; 0: never */
    int pending[MAX_PENDING_HELLOS];
    int pending_count;
};

/* ---- the socket ----------------------------------------------------------------------------- */

static void close_listener(struct loop *loop)
{
    private_socket_close(&loop->listener);
    while (loop->pending_count > 0)
        close(loop->pending[--loop->pending_count]);
}

/* Reads one hello. Returns 1 to wait for it, 0 when the connection is to be closed. */
static int read_hello(struct loop *loop, int fd)
{
    struct rec_hello hello = {0};
    struct iovec part = {&hello, sizeof hello};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             /* LEN, not SPACE: the padding would admit a second descriptor, which
                              * would stay open. */
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof(int)))
        return 0;
    int memfd;
    memcpy(&memfd, CMSG_DATA(c), sizeof memfd);
    struct ucred who;
    socklen_t bytes = sizeof who;
    if (got == sizeof hello && hello.magic == REC_MAGIC &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0)
        loop->events->hello(loop->events->context, memfd, who.pid);
    else
        close(memfd);
    return 0;
}

static void accept_hellos(struct loop *loop)
{
    for (;;) {
        for (int i = 0; i < loop->pending_count;) {
            if (read_hello(loop, loop->pending[i])) {
                i++;
            } else {
                close(loop->pending[i]);
                loop->pending[i] = loop->pending[--loop->pending_count];
            }
        }
        if (loop->pending_count == MAX_PENDING_HELLOS) /* the newest gives way */
            close(loop->pending[--loop->pending_count]);
        int fd = loop->listener.fd >= 0 ? accept4(loop->listener.fd, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd < 0)
            return;
        loop->pending[loop->pending_count++] = fd;
    }
}

/* ---- signals and the child ------------------------------------------------------------------ */

/* From before run_process_shield, for the child. Per process, hence static. */
static sigset_t mask_before;
static struct rlimit file_limit_before;
static struct sigaction child_handler_before;

static void add_passed_on(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(set, passed_on[i]);
    sigaddset(set, SIGCHLD);
}

void run_process_shield(void)
{
    sigset_t set;
    struct sigaction plain = {.sa_handler = SIG_DFL};
    add_passed_on(&set);
    sigaddset(&set, SIGPIPE); /* blocked, not ignored: the command would inherit that */
    sigaddset(&set, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &set, &mask_before);
    /* If leat was started with SIGCHLD ignored, the kernel would reap the child, and its exit
     * status would be lost. */
    sigaction(SIGCHLD, &plain, &child_handler_before);
    if (getrlimit(RLIMIT_FSIZE, &file_limit_before) == 0) {
        struct rlimit raised = {file_limit_before.rlim_max, file_limit_before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &raised);
    }
}

static void open_signals(struct loop *loop)
{
    sigset_t set;
    add_passed_on(&set);
    loop->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Did the signal reach the training as well, because the whole group got it? Without the helper,
 * signals from the kernel are assumed to come from the terminal. */
static int reached_group(struct loop *loop, const struct signalfd_siginfo *info)
{
    int number = (int)info->ssi_signo;
    struct timespec together = {0, TOGETHER_MS * (long)NS_PER_MS};
    nanosleep(&together, NULL);
    uint64_t now = clock_now_ns();
    int saw = group_signal_seen(&loop->group, number);
    if (saw < 0)
        return info->ssi_code == SI_KERNEL;
    if (saw)
        loop->group_ns[number] = now;
    return loop->group_ns[number] && now - loop->group_ns[number] < SAME_SIGNAL_MS * NS_PER_MS;
}

static void read_signals(struct loop *loop)
{
    struct signalfd_siginfo info;
    while (read(loop->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue; /* handled by reap() */
        if (number == SIGINT)
            loop->end.interrupted = 1;
        int taken =
            loop->events->takes_signal && loop->events->takes_signal(loop->events->context, number);
        /* A signal from the training itself is not sent back to it. */
        if (!taken && (pid_t)info.ssi_pid != loop->child && !reached_group(loop, &info))
            kill(loop->child, number);
    }
}

/* 1 when the training has ended. */
static int reap(struct loop *loop)
{
    int status;
    if (waitpid(loop->child, &status, WNOHANG) != loop->child)
        return 0;
    loop->end.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    loop->end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    return 1;
}

static void set_environment(const struct loop *loop, const char *inject_dir)
{
    int wanted = loop->listener.fd >= 0 || !loop->events->hello;
    if (!wanted || !inject_dir || python_home_inject(inject_dir) != 0 || loop->listener.fd < 0)
        return;
    setenv("LEAT_SOCKET", loop->listener.path, 1);
    if (loop->events->probe)
        probe_preload(loop->events->probe); /* if that fails, CUDA calls are not counted */
}

/* A successful exec closes the pipe; a failed one writes its errno into it. */
static int start_child(struct loop *loop, char **argv, const char *inject_dir, struct leat_err *err)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return err_set(err, -errno, "No process can be started: %s.", err_text(errno));
    pid_t pid = fork();
    if (pid == 0) {
        set_environment(loop, inject_dir);
        setrlimit(RLIMIT_FSIZE, &file_limit_before);
        sigaction(SIGCHLD, &child_handler_before, NULL);
        sigprocmask(SIG_SETMASK, &mask_before, NULL);
        execvp(argv[0], argv);
        int code = errno;
        ssize_t written = write(report[1], &code, sizeof code);
        _exit(written == sizeof code ? 127 : 126);
    }
    int code = pid < 0 ? errno : 0;
    close(report[1]);
    if (pid > 0 && read(report[0], &code, sizeof code) != sizeof code)
        code = 0;
    close(report[0]);
    if (code) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        return err_set(err, -code, "%s cannot be run: %s.", argv[0], err_text(code));
    }
    loop->child = pid;
    return 0;
}

static void run_loop(struct loop *loop)
{
    struct itimerspec period = {
        {0, TICK_MS * (long)NS_PER_MS},
        {0, TICK_MS * (long)NS_PER_MS}
    };
    loop->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    timerfd_settime(loop->timer, 0, &period, NULL);
    int ended = 0;
    while (!ended) {
        int (*descriptor)(void *) = loop->events->descriptor;
        struct pollfd watch[4] = {
            {loop->signals,                                       POLLIN, 0},
            {loop->timer,                                         POLLIN, 0},
            {loop->listener.fd,                                   POLLIN, 0},
            {descriptor ? descriptor(loop->events->context) : -1, POLLIN, 0}
        };
        poll(watch, 4, TICK_MS);
        uint64_t ticks;
        int ticked = read(loop->timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks;
        read_signals(loop);
        ended = reap(loop);
        if (watch[3].revents)
            loop->events->readable(loop->events->context);
        /* After reap, so that the hello of a child that has ended is read. Not at every tick: a
         * failing accept4 costs as much as draining the rings. */
        if (watch[2].revents || loop->pending_count > 0 || ended)
            accept_hellos(loop);
        if (ticked && !ended)
            loop->events->tick(loop->events->context);
    }
}

int run_process(char **argv, const char *inject_dir, const struct run_process_events *events,
                struct run_process_end *ret_end, struct leat_err *err)
{
    struct loop loop = {
        .events = events,
        .end = {.exit_status = -1, .signal = -1},
        .listener = {.fd = -1                },
        .signals = -1,
        .timer = -1,
        .group = {.fd = -1}
    };
    if (events->hello && private_socket_open(&loop.listener, SOCK_SEQPACKET, 4096, err) < 0)
        close_listener(&loop);
    open_signals(&loop);
    group_signal_open(&loop.group);
    int result = start_child(&loop, argv, inject_dir, err);
    if (result == 0) {
        events->started(events->context, loop.child);
        run_loop(&loop);
        *ret_end = loop.end;
    }
    close_listener(&loop);
    group_signal_close(&loop.group);
    if (loop.timer >= 0)
        close(loop.timer);
    close(loop.signals);
    return result;
}

void run_process_exit_like(const struct run_process_end *end)
{
    fflush(NULL);
    if (end->signal > 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none); /* leat's own core dump would be useless */
        signal(end->signal, SIG_DFL);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        raise(end->signal);
        _exit(128 + end->signal); /* the signal is ignored by default */
    }
    _exit(end->exit_status);
}
