/* hdf5_ask.c: the process that asks; see hdf5_ask.h. What the child does is in hdf5_answer.c. */
#include "hdf5_ask.h"

#include "base/clock.h"
#include "base/mem.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What libhdf5 may take beyond what the process had: it keeps some megabytes of metadata. */
#define CHILD_MEMORY_BYTES (UINT64_C(4) << 30)

/* A chunk takes 24 bytes of the answer, and at least 8 of the file: one address in its index. */
#define ANSWER_BYTES(file_bytes) ((1u << 20) + 4 * (file_bytes))

/* How long the process looks elsewhere before it asks whether the child is still there: the end of
 * the pipe does not come while a process forked by another thread has it open. */
#define SLICE_MS 50

/* ---- the child ---------------------------------------------------------------------------------
 */
static void limit_memory(void)
{
    char text[64];
    unsigned long long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < got && text[i] >= '0' && text[i] <= '9'; i++)
        pages = pages * 10 + (unsigned long long)(text[i] - '0');
    struct rlimit limit;
    if (!pages || getrlimit(RLIMIT_AS, &limit) < 0)
        return;
    rlim_t most = (rlim_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE) + CHILD_MEMORY_BYTES);
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > most) {
        limit.rlim_cur = most;
        setrlimit(RLIMIT_AS, &limit);
    }
}

/* The handlers of the training are not for this process: it dies at once, and without a core. */
static void be_expendable(void)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        signal(deadly[i], SIG_DFL);
        sigaddset(&set, deadly[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    limit_memory();
}

/* ---- the process that asks ---------------------------------------------------------------------
 */
struct answer {
    pid_t pid;
    int fd;
    int status; /* of the child, when `ended` */
    int ended;  /* 1: it is known how; 2: somebody else has waited for it */
    uint8_t *bytes;
    size_t count, capacity;
    size_t most;
};

static void look_after_child(struct answer *a, int flags)
{
    pid_t got = 0;
    while (!a->ended && (got = waitpid(a->pid, &a->status, flags)) < 0 && errno == EINTR)
        ;
    if (!a->ended && got)
        a->ended = got == a->pid ? 1 : 2;
}

static void end_child(struct answer *a)
{
    look_after_child(a, WNOHANG);
    if (!a->ended) {
        kill(a->pid, SIGKILL);
        look_after_child(a, 0);
    }
}

/* What lies in the pipe. 1: there may be more later. 0: that was all. */
static int read_some(struct answer *a, const char *path, struct leat_err *err)
{
    for (;;) {
        if (a->count >= a->most)
            return err_set(err, -LEAT_E_CORRUPT,
                           "%s is damaged: libhdf5 finds more chunks in it than its size allows.",
                           path);
        if (mem_reserve(&a->bytes, &a->capacity, a->count + 65536, 1) < 0)
            return err_set(err, -ENOMEM, "No memory for the table of chunks of %s.", path);
        ssize_t got = read(a->fd, a->bytes + a->count, a->capacity - a->count);
        if (got > 0)
            a->count += (size_t)got;
        else if (!got)
            return 0;
        else if (errno == EAGAIN)
            return 1;
        else if (errno != EINTR)
            return err_set(err, -errno, "Cannot read what libhdf5 says of %s: %s.", path,
                           err_text(errno));
    }
}

static int read_answer(struct answer *a, const struct hdf5_question *q, struct leat_err *err)
{
    uint64_t heard_ns = clock_now_ns();
    for (;;) {
        struct pollfd pipe_end = {.fd = a->fd, .events = POLLIN};
        size_t before = a->count;
        poll(&pipe_end, 1, SLICE_MS);
        look_after_child(a, WNOHANG);
        int more = read_some(a, q->file->path, err);
        if (more <= 0)
            return more;
        if (a->ended) /* and the pipe is empty */
            return 0;
        if (a->count > before)
            heard_ns = clock_now_ns();
        if (clock_now_ns() - heard_ns > (uint64_t)q->silence_ms * NS_PER_MS)
            return err_set(err, -LEAT_E_CORRUPT,
                           "%s is damaged, or lies on a disk that does not answer: libhdf5 did not "
                           "come back from it within %g s.",
                           q->file->path, q->silence_ms / 1e3);
    }
}

/* How the child ended, where that says something. */
static int judge_end(const struct answer *a, const char *path, struct leat_err *err)
{
    if (a->ended != 1 || (WIFEXITED(a->status) && !WEXITSTATUS(a->status)))
        return 0;
    int by_signal = WIFSIGNALED(a->status);
    return err_set(err, -LEAT_E_CORRUPT, "%s is damaged: libhdf5 failed on it (%s %d).", path,
                   by_signal ? "signal" : "status",
                   by_signal ? WTERMSIG(a->status) : WEXITSTATUS(a->status));
}

/* All signals are blocked over the fork: a handler of the training that runs in the child would
 * meet only half of what it expects. */
static int start_child(struct answer *a, const struct hdf5_question *q, struct leat_err *err)
{
    int ends[2];
    sigset_t all, before;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, -errno, "No pipe to ask about %s: %s.", q->file->path, err_text(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    a->pid = fork();
    int error = errno;
    if (!a->pid) {
        be_expendable();
        close(ends[0]);
        hdf5_answer(q, ends[1]);
        _exit(0);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    a->fd = ends[0];
    if (a->pid < 0) {
        close(a->fd);
        return err_set(err, -error, "No process to ask about %s: %s.", q->file->path,
                       err_text(error));
    }
    fcntl(a->fd, F_SETFL, O_NONBLOCK);
    return 0;
}

int hdf5_ask(const struct hdf5_question *question, uint8_t **ret_bytes, uint64_t *ret_count,
             struct leat_err *err)
{
    struct answer a = {.most = (size_t)ANSWER_BYTES(question->file->bytes)};
    int failed = start_child(&a, question, err);
    if (failed)
        return failed;
    failed = read_answer(&a, question, err);
    if (!failed && !a.ended) {
        /* The pipe is closed, so it is about to end; one that does not is ended. */
        for (int i = 0; i < 1000 && !a.ended; i++) {
            look_after_child(&a, WNOHANG);
            if (!a.ended)
                poll(NULL, 0, 1);
        }
    }
    end_child(&a);
    close(a.fd);
    if (!failed)
        failed = judge_end(&a, question->file->path, err);
    if (failed) {
        mem_free(a.bytes);
        return failed;
    }
    *ret_bytes = a.bytes;
    *ret_count = a.count;
    return 0;
}
