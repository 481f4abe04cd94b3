/* pace.h: how many threads a loader needs, and how many batches ahead.
 *
 * Nobody knows beforehand what a sample costs and how fast the consumer takes batches, and both
 * change. So the loader looks at windows of some batches and moves by one step at a time:
 *
 *     the consumer waits    every thread busy     one more thread; kept if the wait became shorter,
 *                                                 else taken back, and not tried again for a while
 *                           threads rest          twice as many batches ahead: they come in bursts,
 *                                                 which a store of them bridges; kept if it does
 *     the consumer does     threads mostly rest   one less, down to one; where that makes it wait,
 *     not wait                                    it is taken back in the same way
 *     else                                        nothing: the windows get longer
 *
 * Threads that compute may use all cores but one, which is the consumer's; threads that wait for
 * storage or a network use none, so there may be more of them than cores. What a thread uses, or
 * queues for, is measured (schedstat), and cores are those of affinity and cgroup.
 *
 * The decision is a function of the windows alone (pace_decide), without clock and lock, so it is
 * tested with invented ones. A settled loader counts down one number a batch, and looks again every
 * some hundred.
 */
#ifndef LEAT_LOAD_PACE_H
#define LEAT_LOAD_PACE_H

#include <stdint.h>

/* Why the numbers are what they are: name and the sentence for people. */
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
    uint64_t wait_ns; /* of the consumer, its help included */
    uint64_t busy_ns; /* of the threads, without the consumer's help */
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
    /* What pace_decide() remembers. */
    enum pace_want want;   /* of the last window */
    int asked;             /* windows in a row that wanted the same */
    enum pace_want trial;  /* the last change, while it is being judged */
    int settling;          /* one more window passes before it is */
    double before_wait_ns; /* of a batch, before the change */
    double wanted_ns;      /* by how much it must fall */
    int before_ahead;
    int pause[PACE_WANTS]; /* windows until it is tried again */
    int patience[PACE_WANTS];
    int calm; /* windows without a change */

    /* The window; of the engine alone. */
    int64_t left;             /* batches until it is looked at */
    struct pace_sample part;  /* of it, in epochs that are over */
    struct pace_sample start; /* the counters where the present epoch's part begins */
    int running;              /* there is such a part */
};

void pace_init(struct pace *p, int on, double cores, int threads, int ahead, int ahead_most);

/* 1 when `threads` or `ahead` changed. A sample without batches or time changes nothing. */
int pace_decide(struct pace *p, const struct pace_sample *s);

/* Batches of the next window. */
int64_t pace_window(const struct pace *p);

#endif
