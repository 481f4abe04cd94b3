/* pace.h: how many threads a loader needs, and how many batches ahead.
 *
 * The cost of a sample and the speed of the consumer are unknown and change. So the loader measures
 * windows of some batches and changes one thing at a time:
 *
 *     the consumer waits    all threads busy      one more thread; kept if the wait became shorter,
 *                                                 else undone, and not tried again for a while
 *                           threads idle          twice as many batches ahead, which bridge bursts;
 *                                                 kept if the wait became shorter
 *     the consumer does     threads mostly idle   one thread less, down to one; undone in the same
 *     not wait                                    way if the consumer then waits
 *     else                                        nothing: the windows get longer
 *
 * Threads that compute may use all cores but one, which is the consumer's; threads that wait for
 * storage or a network use none, so there may be more of them than cores. What a thread uses or
 * queues for is measured (schedstat); the cores are those that affinity and cgroup allow.
 *
 * The decision is a pure function of the windows (pace_decide), tested with invented ones. A
 * settled loader decrements one number per batch, and decides every few hundred batches.
 */
#ifndef LEAT_LOAD_PACE_H
#define LEAT_LOAD_PACE_H

#include <stdint.h>

/* Reasons for the present numbers: name and message. */
#define PACE_REASONS(X)                                                                            \
    X(FIXED, "as it was asked for")                                                                \
    X(START, "one less than the cores; not adapted yet")                                           \
    X(ENOUGH, "as at the start: that is enough")                                                   \
    X(MORE, "one more: the consumer waited, and every thread was busy")                            \
    X(BACK, "one less again: one more did not help")                                               \
    X(LESS, "one less: threads were idle most of the time")                                        \
    X(NEEDED, "one more again: with one less the consumer waited")                                 \
    X(AHEAD, "more batches ahead: they come in bursts")                                            \
    X(NO_BURSTS, "as many batches ahead as before: more did not help")                             \
    X(CORES, "every thread is busy, and no core is left for one more")

enum pace_reason {
#define X(name, text) PACE_##name,
    PACE_REASONS(X)
#undef X
        PACE_REASONS_COUNT
};
const char *pace_text(enum pace_reason reason);

/* What happened in a window. */
struct pace_sample {
    uint64_t elapsed_ns, batches;
    uint64_t wait_ns; /* of the consumer, with the time in which it helped */
    uint64_t busy_ns; /* of the threads, without that time */
    uint64_t cpu_ns;  /* of the threads, on a core or ready for one */
};

enum pace_want { PACE_WANT_NOTHING, PACE_WANT_MORE, PACE_WANT_LESS, PACE_WANT_AHEAD };
#define PACE_WANTS (PACE_WANT_AHEAD + 1)

struct pace {
    /* Set once. */
    int on;
    double cores; /* that threads may keep busy: all but one, at least 1 */
    int threads_most, ahead_most;
    /* The answer. */
    int threads, ahead;
    enum pace_reason why;
    uint64_t changes;
    /* State of pace_decide(). */
    enum pace_want want;   /* of the last window */
    int asked;             /* windows in a row with the same result */
    enum pace_want trial;  /* the last change, while it is judged */
    int settling;          /* one more window passes before it is judged */
    double before_wait_ns; /* per batch, before the change */
    double wanted_ns;      /* how much less it must become */
    int before_ahead;
    int pause[PACE_WANTS]; /* windows until it may be tried again */
    int retry_windows[PACE_WANTS];
    int steady; /* windows in which nothing had to change */

    /* The current window; used by the engine only. */
    int64_t left;             /* batches until it ends */
    struct pace_sample part;  /* its part in epochs that are over */
    struct pace_sample start; /* the counters at the beginning of the current epoch's part */
    int running;              /* the current epoch has such a part */
};

void pace_init(struct pace *p, int on, double cores, int threads, int ahead, int ahead_most);

/* 1 when `threads` or `ahead` changed. A sample without batches or time changes nothing. */
int pace_decide(struct pace *p, const struct pace_sample *s);

/* Batches of the next window. */
int64_t pace_window(const struct pace *p);

#endif
