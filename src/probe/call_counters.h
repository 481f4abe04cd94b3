/* call_counters.h: counts and times of calls for each thread.
 *
 *     ┌ slot 0 ┐ ┌ slot 1 ┐      ┌ slot 63 ┐ ┌ shared ┐
 *     │ n,     │ │        │ ...  │         │ │ all    │   a thread takes a free slot at its first
 *     │ ticks, │ │        │      │         │ │ later  │   call and releases it when it ends; the
 *     │ bytes  │ │        │      │         │ │ threads│   sums stay, the next thread adds to them
 *     └────────┘ └────────┘      └─────────┘ └────────┘
 *
 * A slot has one thread, so adding needs no atomic operation but plain loads and stores that are
 * never torn. Readers sum all slots at any time. No allocation, no lock.
 *
 * Time is counted in ticks of the processor's counter where its rate is constant (half the cost of
 * clock_gettime), and converted to nanoseconds when it is read. Reading the counter is most of the
 * cost, and a step may have thousands of equal launches or event queries: after the first ALL calls
 * of a slot only one in TIMED is timed and stands for all of them. Their number is exact.
 *
 * A call inside a timed call of the same thread (the runtime calls the driver) is part of the outer
 * call.
 */
#ifndef LEAT_PROBE_CALL_COUNTERS_H
#define LEAT_PROBE_CALL_COUNTERS_H

#include "record/probe_abi.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct call_counter {
    _Atomic uint64_t n, ticks, bytes;
};

struct call_slot {
    _Alignas(64) _Atomic uint32_t taken;
    struct call_counter of[LEAT_CUDA_CLASSES_COUNT];
};

/* Initial-exec: a preloaded library reaches its thread variables without a function call. */
struct call_thread {
    struct call_slot *slot; /* NULL: none yet */
    uint32_t depth;
    uint32_t shared;  /* the slot is the shared one */
    uint32_t untimed; /* so many of the next launches are not timed */
    uint32_t untimed_events;
};
extern __thread struct call_thread call_thread __attribute__((tls_model("initial-exec")));
extern bool call_ticks_steady; /* set once, before the first slot is taken */

void call_slot_take(void);

static inline uint64_t call_ticks(void)
{
#if defined(__x86_64__) && !defined(LEAT_TEST_CLOCK)
    if (call_ticks_steady)
        return __rdtsc();
#endif
    return clock_now_ns();
}

/* For how many calls this one stands if it is timed; 0: it is not timed. */
static inline uint64_t call_weight(enum leat_cuda_class class)
{
    enum { ALL = 1000, TIMED = 7 }; /* 7: few loops have as many */
    if ((class != LEAT_CUDA_LAUNCH && class != LEAT_CUDA_EVENT) ||
        atomic_load_explicit(&call_thread.slot->of[class].n, memory_order_relaxed) < ALL)
        return 1;
    uint32_t *untimed =
        class == LEAT_CUDA_LAUNCH ? &call_thread.untimed : &call_thread.untimed_events;
    if (*untimed) {
        (*untimed)--;
        return 0;
    }
    *untimed = TIMED - 1;
    return TIMED;
}

/* False inside another call. Each true one is followed by a call_leave(). */
static inline bool call_enter(void)
{
    if (call_thread.depth)
        return false;
    call_thread.depth = 1;
    if (!call_thread.slot)
        call_slot_take();
    return true;
}

static inline void call_add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline void call_leave(enum leat_cuda_class class, uint64_t weight, uint64_t start,
                              uint64_t end, uint64_t bytes)
{
    struct call_counter *c = &call_thread.slot->of[class];
    /* The thread may have moved to another socket. */
    uint64_t ticks = end > start ? (end - start) * weight : 0;
    if (call_thread.shared) {
        atomic_fetch_add_explicit(&c->ticks, ticks, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->n, 1, memory_order_relaxed);
    } else {
        call_add(&c->ticks, ticks);
        call_add(&c->bytes, bytes);
        call_add(&c->n, 1);
    }
    call_thread.depth = 0;
}

/* The nanoseconds of a span of ticks. */
uint64_t call_nanoseconds(uint64_t ticks);

/* Sums of all threads so far. False when no call was made at all. */
bool call_counters_read(struct leat_cuda_total ret_totals[LEAT_CUDA_CLASSES_COUNT]);
void call_counters_on_first_call(
    void (*callback)(void));    /* see LEAT_PROBE_ON_FIRST_CALL in probe_abi.h */
void call_counters_reset(void); /* in a forked child: all counts are 0 */

#endif
