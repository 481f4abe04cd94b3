/* gpu_clock.h: how long the device was idle, and what the host did meanwhile.
 *
 * Timing events are recorded into the stream that the training computes on, at times when the
 * host's activity is known. Nothing waits for them. An event is behind the work that was launched
 * before it, so the time between two events is the device's, whatever the host did:
 *
 *     host    launch launch ─E1─ waits for a batch ─E2─ launch ...
 *     stream  ████████████E1                        E2████   exposed: E2 - E1 is the wait
 *     stream  ████████████████████████████████████E1E2████   hidden: E2 - E1 is almost 0
 *
 * If the host launched nothing between two events, all the time between them is idle. These quiet
 * stretches are the phases that the hooks report (gpu_clock_begin_phase), the time after a
 * synchronisation, and gaps: GAP_US without a call. A gap is known only when it ends, so its first
 * event is missing, and its idle time is at most its length. Its site (the number of calls since
 * the phase began) is remembered, because a training repeats its steps: in the next step an event
 * is recorded there in time.
 *
 * A call is one that shows that the host works: a launch, a small copy, or cudaGetDevice(), which
 * PyTorch makes before and after each operation, also of those of cuBLAS, whose launches the probe
 * does not see. Without it large kernels were reported idle on an H200. In a phase of MANY_CALLS
 * the queries right after a launch are ignored, unless a sample is due soon.
 *
 * Pauses below GAP_US are too many to measure all: with small kernels the device is idle in
 * thousands of them in a step. They are sampled: at random times the driver is asked whether the
 * stream is empty.
 *
 *     host    launch ...... launch ...... launch ......
 *     device       ██            ██            ██
 *     visible      ████          ████          ████       the host sees an end late
 *     sample         ^      ^            ^        ^
 *
 * How late is measured on an empty stream; a stream that is not empty is asked again after that
 * delay. A sample that finds the stream empty, in time that no events classify, stands for
 * SAMPLE_NS of idle time, charged to the launches.
 *
 * The time of a copy to the device on that stream is idle time too, charged to the transfer.
 *
 * These sums are made in the training process although it should only record (ARCHITECTURE.md): an
 * event can only be read by the process that recorded it. leat decides what the sums mean.
 *
 * Guarantees
 *   - No synchronisation, no thread, bounded memory. No event during a graph capture.
 *   - Its own time is measured and limited to 1/COST_SHARE of the time: beyond that, whole steps
 * are skipped. Short steps and steps of very many launches are therefore sampled.
 *   - An error of the driver stops the clock and nothing else.
 *
 * Not seen: work on other streams and other devices than those of the training's thread.
 */
#ifndef LEAT_PROBE_GPU_CLOCK_H
#define LEAT_PROBE_GPU_CLOCK_H

#include "probe/call_counters.h"

struct gpu_clock { /* read by every call; written by the thread that uses the clock */
    _Atomic bool on;
    _Atomic(void *) stream;
    _Atomic uint64_t gap_ticks;
    _Atomic bool
        drained; /* a synchronisation has emptied the stream, and nothing was launched since */
    _Atomic uint64_t last_ticks;        /* of the last call */
    _Atomic uint32_t calls;             /* since the phase began */
    _Atomic uint32_t calls_since_event; /* since the last event */
    _Atomic uint32_t site;              /* the call after which the next event is due */
    _Atomic uint64_t sample_ticks;      /* when the stream is to be sampled next */
    _Atomic bool sample_in_launch;      /* that time was inside a launch */
};
extern struct gpu_clock gpu_clock;

struct gpu_clock_thread {
    void *stream; /* of its last launch */
    bool launched;
    bool copying;
    uint8_t ignored_queries; /* so many of the next queries are ignored */
};
extern __thread struct gpu_clock_thread gpu_clock_thread __attribute__((tls_model("initial-exec")));

void gpu_clock_pause_ends(uint64_t now_ticks);
void gpu_clock_sample_due(void);
void gpu_clock_site_reached(void);

static inline bool gpu_clock_on(void)
{
    return atomic_load_explicit(&gpu_clock.on, memory_order_relaxed);
}

/* Whether this thread works on the measured stream. */
static inline bool gpu_clock_follows(void)
{
    return gpu_clock_on() && gpu_clock_thread.launched &&
           gpu_clock_thread.stream == atomic_load_explicit(&gpu_clock.stream, memory_order_relaxed);
}

static inline void gpu_clock_count(_Atomic uint32_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Before a call. */
static inline void gpu_clock_before(bool launches)
{
    if (!gpu_clock_follows())
        return;
    uint64_t now = call_ticks();
    uint64_t pause = now - atomic_load_explicit(&gpu_clock.last_ticks, memory_order_relaxed);
    if (pause > atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) ||
        atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed))
        gpu_clock_pause_ends(now);
    else if (now >= atomic_load_explicit(&gpu_clock.sample_ticks, memory_order_relaxed) &&
             (launches || !atomic_load_explicit(&gpu_clock.sample_in_launch, memory_order_relaxed)))
        gpu_clock_sample_due();
    atomic_store_explicit(&gpu_clock.last_ticks, now, memory_order_relaxed);
    gpu_clock_count(&gpu_clock.calls);
    gpu_clock_count(&gpu_clock.calls_since_event);
}

/* Whether a query is ignored. */
static inline bool gpu_clock_ignores_query(void)
{
    if (!gpu_clock_on())
        return true;
    if (!gpu_clock_thread.ignored_queries)
        return false;
    gpu_clock_thread.ignored_queries--;
    return true;
}

/* Before a query. An operation that waits for the device queries once more before it returns: so
 * soon after the wait it is still the same operation. */
static inline void gpu_clock_query(void)
{
    enum { ECHO_PART = 80 }; /* of a gap: 3 us */
    if (atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed) &&
        call_ticks() - atomic_load_explicit(&gpu_clock.last_ticks, memory_order_relaxed) <
            atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) / ECHO_PART)
        return;
    gpu_clock_before(false);
}

/* After a query, which takes almost no time. */
static inline void gpu_clock_query_done(void)
{
    if (gpu_clock_follows() && !atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed) &&
        atomic_load_explicit(&gpu_clock.calls, memory_order_relaxed) ==
            atomic_load_explicit(&gpu_clock.site, memory_order_relaxed))
        gpu_clock_site_reached();
}

static inline void gpu_clock_after(uint64_t now)
{
    if (!gpu_clock_follows() || atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed))
        return;
    atomic_store_explicit(&gpu_clock.last_ticks, now, memory_order_relaxed);
    gpu_clock_query_done();
}

static inline void gpu_clock_launch(void *stream)
{
    gpu_clock_thread.stream = stream;
    gpu_clock_thread.launched = true;
    gpu_clock_before(true);
}

static inline void gpu_clock_launched(uint64_t now)
{
    enum { MANY_CALLS = 1024, IGNORED_QUERIES = 15, NEAR_PART = 4 }; /* a quarter of a gap: 60 us */
    uint64_t sample_ticks = atomic_load_explicit(&gpu_clock.sample_ticks, memory_order_relaxed);
    uint64_t near = atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) / NEAR_PART;
    if (now >= sample_ticks)
        atomic_store_explicit(&gpu_clock.sample_in_launch, true, memory_order_relaxed);
    if (now + near < sample_ticks &&
        atomic_load_explicit(&gpu_clock.calls, memory_order_relaxed) >= MANY_CALLS)
        gpu_clock_thread.ignored_queries = IGNORED_QUERIES;
    gpu_clock_after(now);
}

/* A copy to the device of `bytes`, before and after; a wait for the device; a call of the allocator
 * that took `ticks`; a capture begins (+1) or ends (-1). */
void gpu_clock_copy_follow(void *stream, uint64_t bytes);
void gpu_clock_copy_followed(uint64_t now);
void gpu_clock_drain_begins(void);
void gpu_clock_drained(void);
void gpu_clock_allocated(uint64_t ticks);
void gpu_clock_capture(int change);

static inline void gpu_clock_copy_begins(void *stream, uint64_t bytes) /* 0: of another kind */
{
    if (gpu_clock_on())
        gpu_clock_copy_follow(stream, bytes);
}

static inline void gpu_clock_copy_ends(uint64_t now)
{
    if (gpu_clock_on() || gpu_clock_thread.copying)
        gpu_clock_copy_followed(now);
}

/* See LEAT_PROBE_PHASE and LEAT_PROBE_CLOCK in probe_abi.h. */
void gpu_clock_begin_phase(enum leat_clock_phase phase);
bool gpu_clock_read(struct leat_clock_total ret_totals[LEAT_CLOCK_PHASES_COUNT]);
void gpu_clock_reset(void); /* in the child of a fork */

#endif
