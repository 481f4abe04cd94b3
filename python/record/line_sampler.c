/* line_sampler.c: at which line the thread that makes batches is, some hundred times a second.
 *
 *     sampler thread (native, never calls Python)           thread that makes batches
 *     every 10 ms or so, uneven, later 100:
 *       is a batch being made?  no: sleep                    makes one
 *       blocked in a system call, and which?
 *       read the stack from memory (python_stack.h)
 *       all codes known?  yes: add to the lines              the batch is there:
 *                         no: keep the sample, ask ────────► sampler_answer() describes the codes
 *
 * A sample stands for the time since the last look, so the lines of a part add up to the time of
 * the part, within the error of sampling. It is taken at the moment of the look: neither a call
 * that holds the GIL for long nor one that releases it draws samples to itself. The sampled thread
 * is never stopped, and once the codes are known nothing is asked of it.
 *
 * A thread is not free where there was none: the C library, which had known that the process has
 * but one, takes locks from then on, for 5 us and more of a step of half a millisecond. So in such
 * a process the sampler waits until batches have taken long enough to be worth it, and where they
 * are quick it never comes.
 *
 * As the sampler's thread calls nothing of Python, it is in nobody's way when the interpreter goes
 * down. fork: the child has no such thread and starts its own when it is told to; what the parent's
 * knew is left alone. What a sampler has is never freed: it is one to a process.
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
    /* A look costs some 20 to 45 us of a CPU, most of it for waking up (bench/lines.py --cost). So
     * the first thousand, which find a share of a half to 1.6 points, come densely; the later ones,
     * which stand for more time each, take some 0.05 % of a CPU. In the workers of a loader's
     * later iterations all are later ones: others have taken the first. Where quick batches are
     * marked as being made only now and then (hook_fetcher.c), most looks find none, and cost the
     * same: so there are no more than DENSE_WAKES. */
    DENSE_LOOKS = 1000,
    DENSE_WAKES = 2500,
    LATER_FACTOR = 10,
    IDLE_FACTOR = 5, /* a second without a batch: look that much less often */
    MOST_NS = 1000000000,
    WORTH_NS = LONG_BATCH_NS /* of batches that are not quick: five looks */
};

struct sampler {
    uint64_t period_ns; /* set once, as lines */
    struct lines *lines;
    atomic_int stop;
    int waits;        /* for something worth a thread */
    uint64_t long_ns; /* of batches that were not quick; quick ones take from it again */
    /* Of the thread. */
    struct stack now;
    int32_t doing_tid;
    int doing_fd; /* /proc/self/task/TID/syscall, or -1 */
    uint64_t last_ns, random;
    int looks; /* that found a batch in the making */
    int wakes; /* all of them */
    int idle;  /* in a row that found none */
};

static struct sampler *_Atomic current;

static void forget_in_child(void)
{
    struct sampler *s = current;
    current = NULL;
    core_making()->asked = 0;
    if (s && s->doing_fd >= 0)
        close(s->doing_fd);
}

void sampler_answer(void)
{
    struct sampler *s = current;
    core_making()->asked = 0;
    if (s)
        lines_answer(s->lines);
}

/* Reading from a pipe or a socket is waiting for somebody, not for a disk. */
static enum doing kind_of_file(const char *arguments)
{
    struct stat file;
    int fd = (int)strtol(arguments, NULL, 16);
    if (fstat(fd, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISSOCK(file.st_mode)))
        return BLOCKED;
    return READING;
}

static enum doing kind_of_call(long number, const char *arguments)
{
    switch (number) {
    case SYS_read:
    case SYS_pread64:
    case SYS_readv:
    case SYS_preadv:
    case SYS_preadv2: return kind_of_file(arguments);
    case -1: /* blocked, and not in a call: it waits for a page of a file that it has mapped */
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
#ifdef SYS_open /* calls that newer machines never had */
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

/* What the kernel says of a thread: "running", or the number of the call in which it is blocked. */
static enum doing look_at(struct sampler *s, int32_t tid)
{
    char text[64];
    if (s->doing_tid != tid) {
        snprintf(text, sizeof text, "/proc/self/task/%d/syscall", (int)tid);
        if (s->doing_fd >= 0)
            close(s->doing_fd);
        s->doing_fd = open(text, O_RDONLY | O_CLOEXEC);
        s->doing_tid = tid;
    }
    ssize_t n = s->doing_fd < 0 ? -1 : pread(s->doing_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return RUNNING;
    text[n] = '\0';
    char *end;
    long number = strtol(text, &end, 10);
    return end == text ? RUNNING : kind_of_call(number, end);
}

static void sample(struct sampler *s, struct making *making, uint64_t ns)
{
    struct stack *stack = &s->now;
    int part = making->part;
    enum doing doing = look_at(s, making->tid);
    memset(stack->ns, 0, sizeof stack->ns);
    stack->ns[doing] = ns;
    stack->part = (enum leat_part)part;
    stack->loader = making->loader;
    stack->n =
        stack_read(making->thread_state, lines_is_last, s->lines, stack->frames, STACK_FRAMES);
    if (part == MAKING_NONE || making->part != part || stack->n == 0) /* it ended meanwhile */
        return;
    if (lines_add(s->lines, stack))
        making->asked = 1;
}

static int is_idle(const struct sampler *s)
{
    return (uint64_t)s->idle * s->period_ns > MOST_NS;
}

/* Uneven, so that it does not beat with the work: between 3/4 and 5/4 of the period. */
static void nap(struct sampler *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t ns = s->period_ns * (768 + (s->random >> 55)) / 1024;
    if (is_idle(s))
        ns *= IDLE_FACTOR;
    else if (s->looks >= DENSE_LOOKS || s->wakes >= DENSE_WAKES)
        ns *= LATER_FACTOR;
    struct timespec left = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

/* On a machine with too few CPUs a look comes late: when the thread it looks at has had its turn,
 * or has gone to sleep, and then all that waits seems to take longer than it does. A thread that
 * asks for short slices is let on sooner, from Linux 6.12 on; before, this changes nothing. */
static void ask_for_short_slices(void)
{
    struct { /* struct sched_attr, of which glibc knows nothing */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 &&
        attributes.policy == SCHED_OTHER) {
        attributes.runtime_ns = 100000; /* the least there is */
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
}

static void *run(void *argument)
{
    struct sampler *s = argument;
    struct making *making = core_making();
    ask_for_short_slices();
    s->last_ns = leat_now_ns();
    while (!s->stop && leat_recording()) {
        int seldom = is_idle(s);
        nap(s);
        uint64_t now = leat_now_ns(), since = now - s->last_ns;
        s->last_ns = now;
        s->wakes++;
        if (making->part == MAKING_NONE) {
            s->idle++;
            continue;
        }
        s->idle = 0;
        s->looks++;
        if (seldom || since > MOST_NS) /* nobody looked meanwhile, or all stood still */
            since = s->period_ns;
        sample(s, making, since);
    }
    return NULL;
}

static int start_thread(struct sampler *s)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return -ENOMEM;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    sigfillset(&all); /* signals are the training's business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        pthread_setname_np(thread, "leat-lines");
    return -error;
}

void sampler_hear(uint64_t ns, int made)
{
    struct sampler *s = current;
    if (!s || !s->waits)
        return;
    if (made && ns < QUICK_BATCH_NS)
        s->long_ns -= s->long_ns < QUICK_BATCH_NS ? s->long_ns : QUICK_BATCH_NS;
    else if (made)
        s->long_ns += ns;
    if (__libc_single_threaded && s->long_ns < WORTH_NS && ns < WORTH_NS)
        return;
    s->waits = 0;
    if (start_thread(s) < 0)
        current = NULL; /* what it has is never freed */
}

static void stop_current(void)
{
    struct sampler *s = current;
    current = NULL;
    if (s)
        s->stop = 1; /* it leaves with its next look */
}

static int start(double hz, int seldom, PyObject *describe)
{
    static int handler_set;
    struct sampler *s = NULL;
    if (stack_open() < 0 || !stack_known() || !(s = calloc(1, sizeof *s)))
        return 0;
    s->lines = lines_new(describe);
    if (!s->lines)
        goto fail;
    s->period_ns = (uint64_t)(1e9 / hz);
    s->looks = seldom ? DENSE_LOOKS : 0;
    s->random = leat_now_ns() ^ (uint64_t)getpid() << 32;
    s->doing_fd = -1;
    if (!handler_set)
        handler_set = pthread_atfork(NULL, NULL, forget_in_child) == 0;
    s->waits = __libc_single_threaded;
    current = s;
    if (!s->waits && start_thread(s) < 0)
        goto fail;
    return 1;
fail:
    current = NULL;
    lines_free(s->lines); /* takes NULL */
    free(s);
    return 0;
}

static PyObject *core_sample_lines(PyObject *self, PyObject *args)
{
    double hz;
    int seldom;
    PyObject *describe;
    if (!PyArg_ParseTuple(args, "dpO", &hz, &seldom, &describe))
        return NULL;
    return PyBool_FromLong(current || start(hz < 10000 ? hz : 10000, seldom, describe));
}

static PyObject *core_stop_lines(PyObject *self, PyObject *unused)
{
    stop_current();
    Py_RETURN_NONE;
}

static PyObject *core_probe_stack(PyObject *self, PyObject *situation)
{
    long which = PyLong_AsLong(situation);
    if (which == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(stack_open() < 0 ? 0 : stack_probe((int)which));
}

static PyMethodDef sampler_methods[] = {
    {"probe_stack",  core_probe_stack,  METH_O,       "probe_stack(situation) -> layouts that fit."},
    {"sample_lines", core_sample_lines, METH_VARARGS,
     "sample_lines(hz, seldom, describe) -> whether lines are sampled in this process from now on. "
     "seldom: at the lower rate from the start."                                                   },
    {"stop_lines",   core_stop_lines,   METH_NOARGS,  "stop_lines(): ends it."                     },
    {NULL,           NULL,              0,            NULL                                         },
};

int sampler_add(PyObject *module)
{
    return PyModule_AddFunctions(module, sampler_methods);
}
