/* line_profiler.c: the line profiler: finds the lines of code at which batches are made.
 *
 *     profiler thread (native, never calls Python)           thread that makes batches
 *     every 10 ms with jitter, later every 100:
 *       is a batch being made?  no: sleep                    makes a batch
 *       blocked in a system call, and in which?
 *       read the stack from memory (python_stack.h)
 *       all code objects known?  yes: add to the lines       the batch is done:
 *                                no: keep it, ask ─────────► profiler_describe_codes()
 *
 * Each stack sample covers the time since the previous one, so the lines of a part add up to the
 * time of the part, within the sampling error. The stack is read at the moment of the sample: calls
 * that hold the GIL and calls that release it are sampled alike. The sampled thread is not stopped,
 * and has nothing to do once its code objects are known.
 *
 * A second thread costs something in itself: glibc uses locks as soon as a process has had a second
 * thread, which adds 5 us to a step of 0.5 ms. In a single-threaded process the profiler therefore
 * starts its thread only when batches have taken long enough.
 *
 * The thread never calls Python, so it does not delay the interpreter's exit. After a fork the
 * child has no such thread, and starts its own on request. A struct profiler is never freed; there
 * is one for each process.
 */
#include "user_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    /* A sample costs 20 to 45 us of CPU, mostly for the wake-up (bench/lines.py --cost). The first
     * thousand, which find a share to 0.5 to 1.6 points, are taken at the full rate. Later ones
     * stand for more time each and take 0.05 % of a CPU. Workers of a loader's later iterations
     * start at the lower rate. Fast batches are marked in current_work.h only now and then
     * (hook_fetcher.c), so most wake-ups find none; DENSE_WAKES limits those at the full rate. */
    DENSE_SAMPLES = 1000,
    DENSE_WAKES = 2500,
    LATER_FACTOR = 10,
    IDLE_FACTOR = 5, /* after a second without a batch: at a fifth of the rate */
    MAX_NS = 1000000000,
    WORTH_NS = LONG_BATCH_NS /* of slow batches: five samples */
};

struct profiler {
    uint64_t period_ns; /* set once, like lines */
    struct lines *lines;
    atomic_int stop;
    int waiting;      /* for batches that are worth a thread */
    uint64_t long_ns; /* of slow batches; fast ones reduce it again */
    /* Of the profiler thread. */
    struct stack_sample now;
    int32_t state_tid;
    int state_fd; /* /proc/self/task/TID/syscall, or -1 */
    uint64_t last_ns, random;
    int samples; /* that found a batch being made */
    int wakes;   /* wake-ups */
    int idle;    /* consecutive wake-ups without a batch */
};

static struct profiler *_Atomic current;

static void forget_in_child(void)
{
    struct profiler *s = current;
    current = NULL;
    current_work()->asked = 0;
    if (s && s->state_fd >= 0)
        close(s->state_fd);
}

void profiler_describe_codes(void)
{
    struct profiler *s = current;
    current_work()->asked = 0;
    if (s)
        lines_describe_codes(s->lines);
}

/* Reading from a pipe or socket is waiting for another process, not for a disk. */
static enum thread_state state_in_read(const char *arguments)
{
    struct stat file;
    int fd = (int)strtol(arguments, NULL, 16);
    if (fstat(fd, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode)))
        return BLOCKED;
    return READING;
}

static enum thread_state state_in_call(long number, const char *arguments)
{
    switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2: return state_in_read(arguments);
    case -1: /* blocked outside a call: waits for a page of a mapped file */
    case SYS_openat:
    case SYS_close:
    case SYS_newfstatat:
    case SYS_fstat:
    case SYS_statx:
    case SYS_faccessat:
    case SYS_readlinkat:
    case SYS_lseek:
    case SYS_mmap:
    case SYS_munmap:
    case SYS_madvise:
    case SYS_readahead:
    case SYS_fadvise64:
    case SYS_getdents64:
    case SYS_sendfile:
    case SYS_io_getevents:
    case SYS_io_uring_enter:
#ifdef SYS_open /* not on newer architectures */
    case SYS_open:
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
    case SYS_readlink:
#endif
        return READING;
    default: return BLOCKED;
    }
}

/* The state of a thread in /proc: "running", or the number of the call in which it is blocked. */
static enum thread_state state_of(struct profiler *s, int32_t tid)
{
    char text[64];
    if (s->state_tid != tid) {
        snprintf(text, sizeof text, "/proc/self/task/%d/syscall", (int)tid);
        if (s->state_fd >= 0)
            close(s->state_fd);
        s->state_fd = open(text, O_RDONLY | O_CLOEXEC);
        s->state_tid = tid;
    }
    ssize_t n = s->state_fd < 0 ? -1 : pread(s->state_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return RUNNING;
    text[n] = '\0';
    char *end;
    long number = strtol(text, &end, 10);
    return end == text ? RUNNING : state_in_call(number, end);
}

static void sample(struct profiler *s, struct current_work *work, uint64_t ns)
{
    struct stack_sample *stack = &s->now;
    int part = work->part;
    enum thread_state state = state_of(s, work->tid);
    memset(stack->ns, 0, sizeof stack->ns);
    stack->ns[state] = ns;
    stack->part = (enum leat_part)part;
    stack->loader = work->loader;
    stack->n = stack_read(work->thread_state, lines_is_last, s->lines, stack->frames, STACK_FRAMES);
    /* The batch may have ended meanwhile. */
    if (part == WORK_NONE || work->part != part || stack->n == 0)
        return;
    if (lines_add(s->lines, stack))
        work->asked = 1;
}

static int is_idle(const struct profiler *s)
{
    return (uint64_t)s->idle * s->period_ns > MAX_NS;
}

/* Jitter, so that the samples do not run in step with the work: 3/4 to 5/4 of the period. */
static void sleep_until_next(struct profiler *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t ns = s->period_ns * (768 + (s->random >> 55)) / 1024;
    if (is_idle(s))
        ns *= IDLE_FACTOR;
    else if (s->samples >= DENSE_SAMPLES || s->wakes >= DENSE_WAKES)
        ns *= LATER_FACTOR;
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* With too few CPUs a sample comes late: after the sampled thread has used its time slice or has
 * gone to sleep, so waits seem longer than they are. A thread that requests short slices is
 * scheduled sooner, from Linux 6.12 on. */
static void ask_for_short_slices(void)
{
    struct { /* struct sched_attr, which glibc does not have */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 &&
        attributes.policy == SCHED_OTHER) {
        attributes.runtime_ns = 100000; /* the minimum */
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
}

static void *run(void *argument)
{
    struct profiler *s = argument;
    struct current_work *work = current_work();
    ask_for_short_slices();
    s->last_ns = leat_now_ns();
    while (!s->stop && leat_recording()) {
        int slow_rate = is_idle(s);
        sleep_until_next(s);
        uint64_t now = leat_now_ns(), since = now - s->last_ns;
        s->last_ns = now;
        s->wakes++;
        if (work->part == WORK_NONE) {
            s->idle++;
            continue;
        }
        s->idle = 0;
        s->samples++;
        if (slow_rate || since > MAX_NS) /* a long sleep, or the whole process was stopped */
            since = s->period_ns;
        sample(s, work, since);
    }
    return NULL;
}

static int start_thread(struct profiler *s)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return -ENOMEM;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    sigfillset(&all); /* signals go to the threads of the training */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        pthread_setname_np(thread, "leat-lines");
    return -error;
}

void profiler_batch_time(uint64_t ns, int done)
{
    struct profiler *s = current;
    if (!s || !s->waiting)
        return;
    if (done && ns < QUICK_BATCH_NS)
        s->long_ns -= s->long_ns < QUICK_BATCH_NS ? s->long_ns : QUICK_BATCH_NS;
    else if (done)
        s->long_ns += ns;
    if (__libc_single_threaded && s->long_ns < WORTH_NS && ns < WORTH_NS)
        return;
    s->waiting = 0;
    if (start_thread(s) < 0)
        current = NULL; /* what it has is never freed */
}

static void stop_current(void)
{
    struct profiler *s = current;
    current = NULL;
    if (s)
        s->stop = 1; /* its thread ends at the next wake-up */
}

static int start(double hz, int slow_rate, PyObject *describe)
{
    static int handler_set;
    struct profiler *s = NULL;
    if (stack_open() < 0 || !stack_known() || !(s = calloc(1, sizeof *s)))
        return 0;
    s->lines = lines_new(describe);
    if (!s->lines)
        goto fail;
    s->period_ns = (uint64_t)(1e9 / hz);
    s->samples = slow_rate ? DENSE_SAMPLES : 0;
    s->random = leat_now_ns() ^ (uint64_t)getpid() << 32;
    s->state_fd = -1;
    if (!handler_set)
        handler_set = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    s->waiting = __libc_single_threaded;
    current = s;
    if (!s->waiting && start_thread(s) < 0)
        goto fail;
    return 1;
fail:
    current = NULL;
    lines_free(s->lines); /* takes NULL */
    free(s);
    return 0;
}

static PyObject *py_profile_lines(PyObject *self, PyObject *args)
{
    double hz;
    int slow_rate;
    PyObject *describe;
    if (!PyArg_ParseTuple(args, "dpO", &hz, &slow_rate, &describe))
        return NULL;
    return PyBool_FromLong(current || start(hz < 10000 ? hz : 10000, slow_rate, describe));
}

static PyObject *py_stop_lines(PyObject *self, PyObject *unused)
{
    stop_current();
    Py_RETURN_NONE;
}

static PyObject *py_probe_stack(PyObject *self, PyObject *situation)
{
    long which = PyLong_AsLong(situation);
    if (which == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(stack_open() < 0 ? 0 : stack_probe((int)which));
}

static PyMethodDef profiler_methods[] = {
    {"probe_stack",   py_probe_stack,   METH_O,       "probe_stack(situation) -> layouts that fit."},
    {"profile_lines", py_profile_lines, METH_VARARGS,
     "profile_lines(hz, slow_rate, describe) -> whether lines are sampled in this process from now "
     "on. "
     "slow_rate: at the lower rate from the start."                                                },
    {"stop_lines",    py_stop_lines,    METH_NOARGS,  "stop_lines(): ends it."                     },
    {NULL,            NULL,             0,            NULL                                         },
};

int line_profiler_add(PyObject *module)
{
    return PyModule_AddFunctions(module, profiler_methods);
}
