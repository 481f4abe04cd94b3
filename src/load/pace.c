/* pace.c: see pace.h. */
#include "load/pace.h"

#include "base/clock.h"
#include "load/engine.h"

/* Shares of the window's time. Below a hundredth nobody gains by more threads. The two bounds on
 * waits and on busy threads lie apart, so that one more and one less do not call for each other. */
#define WAITS      0.02 /* the consumer waits */
#define WAITS_NOT  0.01
#define BUSY       0.80 /* of the threads' time: they have no pause worth the name */
#define WOULD_REST 0.60 /* of the time of one thread less: it would still have pauses */

/* A thread more is worth it when it takes away a third of the wait that it could: of T threads and
 * the helping consumer it makes one part in T + 2. */
#define HELPS           3.0

#define STARVED_WINDOWS 2 /* before one more */
#define RESTED_WINDOWS  4 /* before one less: evaluation and checkpoints look like rest */
#define PATIENCE        8 /* windows before what did not help is tried again; doubles each time */
#define PATIENCE_MOST   1024
#define THREADS_WAITING 64 /* at the most, where they only wait */

#define WINDOW_BATCHES  8
#define WINDOW_DOUBLES  4 /* calm windows after which they get twice as long */
#define WINDOW_MOST     6 /* times */
#define WINDOW_LEAST_NS (20 * NS_PER_MS)

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
    p->patience_more = p->patience_less = PATIENCE;
    p->left = WINDOW_BATCHES;
}

int64_t pace_window(const struct pace *p)
{
    int doubles = p->trial ? 1 : p->calm / WINDOW_DOUBLES; /* a trial is judged on some more */
    return (int64_t)WINDOW_BATCHES << (doubles < WINDOW_MOST ? doubles : WINDOW_MOST);
}

static int change(struct pace *p, int threads, int trial, enum pace_reason why)
{
    p->threads += threads;
    p->trial = trial;
    p->settling = trial != 0; /* the window in which it happens is of both */
    p->asked = p->calm = 0;
    p->why = why;
    p->changes++;
    return 1;
}

/* What did not help is left alone for longer each time. */
static int take_back(struct pace *p, int threads, enum pace_reason why, int *patience, int *pause)
{
    *pause = *patience;
    if (*patience < PATIENCE_MOST)
        *patience *= 2;
    return change(p, threads, 0, why);
}

/* One more thread, to be judged by what it could bring. */
static int try_more(struct pace *p, double step_ns, double wait_ns)
{
    double could = step_ns / (p->threads + 2);
    p->before_wait_ns = wait_ns;
    p->wanted_ns = (could < wait_ns ? could : wait_ns) / HELPS;
    return change(p, 1, 1, PACE_MORE);
}

/* The last change has had a window to itself. */
static int judge(struct pace *p, double step_ns, double wait_ns)
{
    int trial = p->trial;
    p->trial = 0;
    if (trial > 0 && p->before_wait_ns - wait_ns < p->wanted_ns)
        return take_back(p, -1, PACE_BACK, &p->patience_more, &p->no_more);
    if (trial < 0 && wait_ns > WAITS * step_ns)
        return take_back(p, 1, PACE_NEEDED, &p->patience_less, &p->no_less);
    return 0;
}

static void count_down(int *windows)
{
    *windows -= *windows > 0;
}

/* What this window asks for. */
static enum pace_want want_of(struct pace *p, double wait, double busy, double cpu)
{
    double threads = p->threads;
    if (wait > WAITS && busy >= BUSY * threads) {
        /* Threads that compute must find a core beside the consumer's; a tenth is for what the
         * clocks miss. */
        if (cpu * (threads + 1) / threads > p->cores + 0.1) {
            p->why = PACE_CORES;
            return PACE_WANT_NOTHING;
        }
        return p->no_more || p->threads >= p->threads_most ? PACE_WANT_NOTHING : PACE_WANT_MORE;
    }
    if (wait > WAITS)
        return p->ahead < p->ahead_most ? PACE_WANT_AHEAD : PACE_WANT_NOTHING;
    if (wait < WAITS_NOT && busy < WOULD_REST * (threads - 1) && !p->no_less)
        return PACE_WANT_LESS;
    return PACE_WANT_NOTHING;
}

int pace_decide(struct pace *p, const struct pace_sample *s)
{
    if (!s->batches || !s->elapsed_ns || !p->on)
        return 0;
    double elapsed = (double)s->elapsed_ns, n = (double)s->batches;
    count_down(&p->no_more);
    count_down(&p->no_less);
    if (p->settling) {
        p->settling = 0;
        return 0;
    }
    if (p->trial && judge(p, elapsed / n, (double)s->wait_ns / n))
        return 1;
    enum pace_want want = want_of(p, (double)s->wait_ns / elapsed, (double)s->busy_ns / elapsed,
                                  (double)s->cpu_ns / elapsed);
    p->asked = want == p->want ? p->asked + 1 : 1;
    p->want = want;
    /* Whoever wants something is looked at closely. */
    p->calm = want == PACE_WANT_NOTHING ? p->calm + 1 : 0;
    switch (want) {
    case PACE_WANT_MORE:
        if (p->asked >= STARVED_WINDOWS)
            return try_more(p, elapsed / n, (double)s->wait_ns / n);
        return 0;
    case PACE_WANT_AHEAD:
        if (p->asked < STARVED_WINDOWS)
            return 0;
        p->ahead = p->ahead < p->ahead_most / 2 ? 2 * p->ahead : p->ahead_most;
        return change(p, 0, 0, PACE_AHEAD);
    case PACE_WANT_LESS: return p->asked >= RESTED_WINDOWS ? change(p, -1, -1, PACE_LESS) : 0;
    case PACE_WANT_NOTHING: break;
    }
    if (p->why == PACE_START && p->calm >= RESTED_WINDOWS)
        p->why = PACE_ENOUGH;
    return 0;
}

/* ---- the engine's windows ----------------------------------------------------------------------
 */

/* CPU time of all threads; a thread that is gone counts as before. */
static uint64_t threads_cpu_ns(const struct leat_loader *l)
{
    uint64_t sum = 0;
    for (int i = 0; i < l->started; i++) {
        clockid_t clock;
        struct timespec t;
        if (pthread_getcpuclockid(l->threads[i].id, &clock) == 0 && clock_gettime(clock, &t) == 0)
            sum += (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
    }
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
                                .cpu_ns = threads_cpu_ns(l)};
}

/* Counters may fall: the threads of a forked child start at none. */
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
        return; /* quick batches: some more of them */
    engine_pace_pause(l);
    engine_pace_start(l);
    int changed = pace_decide(p, &p->part);
    p->part = (struct pace_sample){0};
    p->left = pace_window(p);
    if (!changed)
        return;
    l->active = p->threads;
    if (l->options.order != LEAT_ORDER_GIVEN) /* whose indices lie in as many places */
        l->options.ahead = p->ahead;
    work_start_threads(l);
    pthread_cond_broadcast(&l->work);
}
