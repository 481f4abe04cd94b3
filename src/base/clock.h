/* clock.h: the clocks. Everything that is measured uses CLOCK_MONOTONIC, which all processes of one
 * machine share; the wall clock is for people and appears once, as a run's start. The cost of
 * leat's own work is CPU time: on a busy machine, wall time would include that of other programs.
 */
#ifndef LEAT_BASE_CLOCK_H
#define LEAT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

#ifdef LEAT_TEST_CLOCK /* a test sets the time by hand */
uint64_t leat_test_clock_ns(void);
#endif

static inline uint64_t clock_now_ns(void)
{
#ifdef LEAT_TEST_CLOCK
    return leat_test_clock_ns();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
#endif
}

static inline uint64_t clock_cpu_ns(void) /* of this thread */
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

#endif
