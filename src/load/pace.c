/* pace.c: see pace.h. */
#include "load/pace.h"

#include "base/clock.h"
#include "base/proc_text.h"
#include "load/engine.h"

#include <limits.h>
#include <stdio.h>

/* Shares of the time of a window. Waits below a hundredth do not matter. The two bounds on waits
 * and on busy threads are apart, so that one more thread and one less do not alternate. */
#define WAITS      0.02 /* the consumer waits */
#define WAITS_NOT  0.01
#define BUSY       0.80 /* of the threads' time: they have no pauses */
#define WOULD_REST 0.60 /* of the time of one thread less: it would still have pauses */

/* A thread more is kept when it removes a third of the wait that it could: one part in T + 2 with T
 * threads and the helping consumer. */
#define HELPS           3.0

#define STARVED_WINDOWS 2 /* before one thread more */
#define RESTED_WINDOWS                                                                             \
    4 /* before one thread less: evaluation and checkpoints look like idle threads */
#define RETRY_WINDOWS                                                                              \
    8 /* windows before a change that did not help is tried again; doubles each time               \
       */
#define RETRY_WINDOWS_MAX 1024
#define THREADS_WAITING   64 /* limit on threads that only wait */

#define WINDOW_BATCHES    8
#define WINDOW_DOUBLES    4 /* windows without a change after which they become twice as long */
#define WINDOW_MOST       6 /* doublings */
#define WINDOW_LEAST_NS   (20 * NS_PER_MS)

const char *pace_text(enum pace_reason reason)
{
    static const char *const texts[] = {
#define X(name, text) text,
        PACE_REASONS(X)
#undef X
    };
    return (unsigned)reason < PACE_REASONS_COUNT ? texts[reason] : "";
}

/* ---- the decision ------------------------------------------------------------------------------
 */
void pace_init(struct pace *p, int on, double cores, int threads, int ahead, int ahead_most)
{
    *p = (struct pace){.on = on, .threads = threads, .ahead = ahead, .ahead_most = ahead_most};
    p->cores = cores - 1 > 1 ? cores - 1 : 1;
    p->threads_most = threads > THREADS_WAITING ? threads : THREADS_WAITING;
    p->why = on ? PACE_START : PACE_FIXED;
    for (int want = 0; want < PACE_WANTS; want++)
        p->retry_windows[want] = RETRY_WINDOWS;
    p->left = WINDOW_BATCHES;
}

int64_t pace_window(const struct pace *p)
{
    int doubles = p->trial != PACE_WANT_NOTHING
                      ? 1
                      : p->steady / WINDOW_DOUBLES; /* a change is judged on a longer one */
    return (int64_t)WINDOW_BATCHES << (doubles < WINDOW_MOST ? doubles : WINDOW_MOST);
}

static int change(struct pace *p, enum pace_want trial, enum pace_reason why)
{
    p->trial = trial;
    p->settling = trial != PACE_WANT_NOTHING; /* the window of the change is part old, part new */
    p->asked = p->steady = 0;
    p->why = why;
    p->changes++;
    return 1;
}

/* Makes the change; its effect on the wait is judged later. */
static int try_out(struct pace *p, enum pace_want want, double step_ns, double wait_ns)
{
    double could = step_ns / (p->threads + 2);
    p->before_wait_ns = wait_ns;
    p->before_ahead = p->ahead;
    switch (want) {
    case PACE_WANT_MORE:
        p->wanted_ns = (could < wait_ns ? could : wait_ns) / HELPS;
        p->threads++;
        return change(p, want, PACE_MORE);
    case PACE_WANT_AHEAD:
        p->wanted_ns = wait_ns / HELPS;
        p->ahead = p->ahead < p->ahead_most / 2 ? 2 * p->ahead : p->ahead_most;
        return change(p, want, PACE_AHEAD);
    case PACE_WANT_LESS: p->threads--; return change(p, want, PACE_LESS);
    case PACE_WANT_NOTHING: break;
    }
    return 0;
}

/* Undoes a change. Each time the next try comes later. */
static int take_back(struct pace *p, enum pace_want trial, enum pace_reason why)
{
    p->threads += trial == PACE_WANT_LESS ? 1 : trial == PACE_WANT_MORE ? -1 : 0;
    p->ahead = p->before_ahead;
    p->pause[trial] = p->retry_windows[trial];
    if (p->retry_windows[trial] < RETRY_WINDOWS_MAX)
        p->retry_windows[trial] *= 2;
    return change(p, PACE_WANT_NOTHING, why);
}

/* Judges the last change by a window of its own. */
static int judge(struct pace *p, double step_ns, double wait_ns)
{
    enum pace_want trial = p->trial;
    int helped = p->before_wait_ns - wait_ns >= p->wanted_ns;
    p->trial = PACE_WANT_NOTHING;
    switch (trial) {
    case PACE_WANT_MORE: return helped ? 0 : take_back(p, trial, PACE_BACK);
    case PACE_WANT_AHEAD: return helped ? 0 : take_back(p, trial, PACE_NO_BURSTS);
    case PACE_WANT_LESS: return wait_ns <= WAITS * step_ns ? 0 : take_back(p, trial, PACE_NEEDED);
    case PACE_WANT_NOTHING: break;
    }
    return 0;
}

/* What the shares of a window call for: the consumer's wait, the threads' work and their CPU time.
 */
static enum pace_want want_of(struct pace *p, double wait, double busy, double cpu)
{
    double threads = p->threads;
    if (wait > WAITS && busy >= BUSY * threads) {
        /* Threads that compute need a core beside the consumer's; a tenth for what clocks miss. */
        if (cpu * (threads + 1) / threads > p->cores + 0.1) {
            p->why = PACE_CORES;
            return PACE_WANT_NOTHING;
        }
        return p->threads < p->threads_most ? PACE_WANT_MORE : PACE_WANT_NOTHING;
    }
    /* The batches waited for could have been made while threads were idle. */
    if (wait > WAITS && wait <= threads - busy && p->ahead < p->ahead_most)
        return PACE_WANT_AHEAD;
    if (wait < WAITS_NOT && busy < WOULD_REST * (threads - 1))
        return PACE_WANT_LESS;
    return PACE_WANT_NOTHING;
}

int pace_decide(struct pace *p, const struct pace_sample *s)
{
    static const int enough[] = {[PACE_WANT_NOTHING] = INT_MAX,
                                 [PACE_WANT_MORE] = STARVED_WINDOWS,
                                 [PACE_WANT_AHEAD] = STARVED_WINDOWS,
                                 [PACE_WANT_LESS] = RESTED_WINDOWS};
    if (!s->batches || !s->elapsed_ns || !p->on)
        return 0;
    double elapsed = (double)s->elapsed_ns, step_ns = elapsed / (double)s->batches;
    double wait = (double)s->wait_ns / elapsed;
    for (int want = 0; want < PACE_WANTS; want++)
        p->pause[want] -= p->pause[want] > 0;
    if (p->settling) {
        p->settling = 0;
        return 0;
    }
    if (p->trial != PACE_WANT_NOTHING && judge(p, step_ns, wait * step_ns))
        return 1;
    enum pace_want want =
        want_of(p, wait, (double)s->busy_ns / elapsed, (double)s->cpu_ns / elapsed);
    if (p->pause[want])
        want = PACE_WANT_NOTHING;
    p->asked = want == p->want ? p->asked + 1 : 1;
    p->want = want;
    /* Short windows while something has to change. */
    p->steady = want == PACE_WANT_NOTHING ? p->steady + 1 : 0;
    if (p->asked >= enough[want])
        return try_out(p, want, step_ns, wait * step_ns);
    if (p->why == PACE_START && p->steady >= RESTED_WINDOWS)
        p->why = PACE_ENOUGH;
    return 0;
}

/* ---- the engine's windows ----------------------------------------------------------------------
 */

/* Time that a thread ran or queued for a core: "cpu_ns delay_ns slices". A thread that queues
 * behind other programs does not wait for storage, and more threads would only take cores from
 * those. Without that file, its CPU time. */
static uint64_t wanted_ns(const struct engine_thread *thread)
{
    char path[64], text[128];
    clockid_t clock;
    struct timespec t;
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)thread->tid);
    if (thread->tid && proc_text_read_at("/", path, text, sizeof text) > 0) {
        const char *at = text;
        int64_t cpu = proc_text_number(&at), sum = proc_text_sum(cpu, proc_text_number(&at));
        if (cpu > 0 && sum > 0)
            return (uint64_t)sum;
    }
    if (pthread_getcpuclockid(thread->id, &clock) < 0 || clock_gettime(clock, &t) < 0)
        return 0;
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t threads_wanted_ns(const struct leat_loader *l)
{
    uint64_t sum = 0;
    for (int i = 0; i < l->started; i++)
        sum += wanted_ns(&l->threads[i]);
    return sum;
}

static uint64_t busy_ns(const struct leat_loader *l)
{
    const struct leat_loader_stats *s = &l->stats;
    return s->order_ns + s->read_ns + s->layout_ns - s->help_ns;
}

static struct pace_sample counters(const struct leat_loader *l)
{
    return (struct pace_sample){.elapsed_ns = clock_now_ns(),
                                .batches = l->stats.batches,
                                .wait_ns = l->stats.wait_ns,
                                .busy_ns = busy_ns(l),
                                .cpu_ns = threads_wanted_ns(l)};
}

/* Counters may fall: the threads of a forked child start at 0. */
static void add_growth(uint64_t *sum, uint64_t from, uint64_t to)
{
    *sum += to > from ? to - from : 0;
}

void engine_pace_start(struct leat_loader *l)
{
    if (!l->pace.on)
        return;
    l->pace.start = counters(l);
    l->pace.running = 1;
}

void engine_pace_pause(struct leat_loader *l)
{
    struct pace *p = &l->pace;
    if (!p->on || !p->running)
        return;
    struct pace_sample now = counters(l);
    add_growth(&p->part.elapsed_ns, p->start.elapsed_ns, now.elapsed_ns);
    add_growth(&p->part.batches, p->start.batches, now.batches);
    add_growth(&p->part.wait_ns, p->start.wait_ns, now.wait_ns);
    add_growth(&p->part.busy_ns, p->start.busy_ns, now.busy_ns);
    add_growth(&p->part.cpu_ns, p->start.cpu_ns, now.cpu_ns);
    p->running = 0;
}

void engine_pace_look(struct leat_loader *l)
{
    struct pace *p = &l->pace;
    p->left = pace_window(p);
    if (p->part.elapsed_ns + clock_now_ns() - p->start.elapsed_ns < WINDOW_LEAST_NS)
        return; /* short batches: some more of them */
    engine_pace_pause(l);
    engine_pace_start(l);
    int changed = pace_decide(p, &p->part);
    p->part = (struct pace_sample){0};
    p->left = pace_window(p);
    if (!changed)
        return;
    l->active = p->threads;
    if (l->options.order != LEAT_ORDER_GIVEN) /* its indices have a fixed number of places */
        l->options.ahead = p->ahead;
    engine_start_threads(l);
    pthread_cond_broadcast(&l->work);
}
