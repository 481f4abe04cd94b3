/* gpu_clock.h: how long the device stood idle, and what the host did meanwhile.
 *
 * Timing events are put into the stream that the training computes on, at moments at which
 * something is known of the host; nobody ever waits for one. They stand in the stream behind the
 * work that was launched before them, so the time between two of them is the device's, whatever the
 * host did:
 *
 *     host    launch launch ─E1─ waits for a batch ─E2─ launch ...
 *     stream  ████████████E1                        E2████   exposed: E2 - E1 is the wait
 *     stream  ████████████████████████████████████E1E2████   hidden: E2 - E1 is nothing
 *
 * Where the host launched nothing between two events, all of their distance is idle time: nothing
 * was there to do. Such quiet stretches are the waits that the hooks announce
 * (gpu_clock_begin_phase), the time after a synchronisation, and gaps between two launches. Of a
 * gap it is known only afterwards that it was one: then an event ends it, and the place where it
 * began (the count of calls since the phase began) is learned, since a training does the same in
 * every step; the next time an event stands there too. Until then the gap's idle time is known only
 * to be no more than the gap.
 *
 * A beat is any call that says that the host is at work: a launch, or cudaGetDevice(), which
 * PyTorch calls before and after each operation, also those of cuBLAS that the probe cannot see. A
 * gap is GAP_US without a beat. In a phase that has had MANY_BEATS, questions right behind a launch
 * are not heard, unless a moment (below) is near: the launches are beats enough.
 *
 * Shorter pauses are too many for two events each; a device whose kernels are too small for their
 * launches stands idle in thousands of them a step. They are sampled: at random moments, which know
 * nothing of the training's rhythm, the driver is asked whether the stream is empty.
 *
 *     host    launch ...... launch ...... launch ......
 *     device       ██            ██            ██
 *     seen         ████          ████          ████       busy until the host can see the end
 *     asked          ^      ^            ^        ^
 *
 * The host sees an end some microseconds late, as the device sees a launch late: how late is
 * measured, on a stream that is empty, and one that is not is asked once more so long after the
 * moment. A moment inside a launch is the state before a launch, and is asked for before the next.
 * Each moment that found the stream empty, in time of which no events tell, stands for MOMENT_NS of
 * idle time, which is charged to the launches.
 *
 * What a copy to the device takes on that stream is idle time too, charged to the transfer: nothing
 * computes on it meanwhile.
 *
 * Guarantees
 *   - No synchronisation, no thread, bounded memory. Nothing while a graph is being captured.
 *   - Its own time is measured and stays below a share of the steps' (COST_SHARE): beyond it, whole
 *     steps are left out, so short steps, and those of very many launches, are sampled.
 *   - Whatever the driver refuses ends the clock and nothing else.
 *
 * Not seen: work on other streams and other devices than those of the training's thread.
 */
#ifndef LEAT_PROBE_GPU_CLOCK_H
#define LEAT_PROBE_GPU_CLOCK_H

#include "probe/call_counters.h"

struct gpu_clock { /* what every call looks at; written by whoever holds the clock */
    _Atomic bool on;
    _Atomic(void *) stream;
    _Atomic uint64_t gap_ticks;
    _Atomic bool drained; /* a synchronisation has emptied the stream, and nothing came since */
    _Atomic uint64_t last_ticks; /* of the last beat */
    _Atomic uint32_t beats;      /* since the phase began */
    _Atomic uint32_t fresh;      /* since the last event */
    _Atomic uint32_t site;       /* the beat after which the next event is due */
    _Atomic uint64_t moment;     /* ticks: when the stream is to be asked next */
    _Atomic bool moment_in_call; /* it fell into a launch */
};
extern struct gpu_clock gpu_clock;

struct gpu_clock_thread {
    void *stream; /* of its last launch */
    bool launched;
    bool copying;
    uint8_t unheard; /* questions to come that are no beats */
};
extern __thread struct gpu_clock_thread gpu_clock_thread __attribute__((tls_model("initial-exec")));

void gpu_clock_pause_ends(uint64_t now_ticks);
void gpu_clock_moment_comes(void);
void gpu_clock_site_comes(void);

static inline bool gpu_clock_on(void)
{
    return atomic_load_explicit(&gpu_clock.on, memory_order_relaxed);
}

/* Whether what this thread does is done to the stream of the clock. */
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

/* Around a beat. */
static inline void gpu_clock_before(bool launches)
{
    if (!gpu_clock_follows())
        return;
    uint64_t now = call_ticks();
    uint64_t pause = now - atomic_load_explicit(&gpu_clock.last_ticks, memory_order_relaxed);
    if (pause > atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) ||
        atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed))
        gpu_clock_pause_ends(now);
    else if (now >= atomic_load_explicit(&gpu_clock.moment, memory_order_relaxed) &&
             (launches || !atomic_load_explicit(&gpu_clock.moment_in_call, memory_order_relaxed)))
        gpu_clock_moment_comes();
    atomic_store_explicit(&gpu_clock.last_ticks, now, memory_order_relaxed);
    gpu_clock_count(&gpu_clock.beats);
    gpu_clock_count(&gpu_clock.fresh);
}

/* Whether a call that only asks is no beat. */
static inline bool gpu_clock_deaf(void)
{
    if (!gpu_clock_on())
        return true;
    if (!gpu_clock_thread.unheard)
        return false;
    gpu_clock_thread.unheard--;
    return true;
}

/* Before a beat that only asks. An operation that waits for the device does so once more
 * before it returns: that soon after the wait it is still the same operation. */
static inline void gpu_clock_asked(void)
{
    enum { ECHO_PART = 80 }; /* of a gap: 3 us */
    if (atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed) &&
        call_ticks() - atomic_load_explicit(&gpu_clock.last_ticks, memory_order_relaxed) <
            atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) / ECHO_PART)
        return;
    gpu_clock_before(false);
}

/* Such a call takes no time to speak of. */
static inline void gpu_clock_answered(void)
{
    if (gpu_clock_follows() && !atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed) &&
        atomic_load_explicit(&gpu_clock.beats, memory_order_relaxed) ==
            atomic_load_explicit(&gpu_clock.site, memory_order_relaxed))
        gpu_clock_site_comes();
}

static inline void gpu_clock_after(uint64_t now)
{
    if (!gpu_clock_follows() || atomic_load_explicit(&gpu_clock.drained, memory_order_relaxed))
        return;
    atomic_store_explicit(&gpu_clock.last_ticks, now, memory_order_relaxed);
    gpu_clock_answered();
}

static inline void gpu_clock_launch(void *stream)
{
    gpu_clock_thread.stream = stream;
    gpu_clock_thread.launched = true;
    gpu_clock_before(true);
}

static inline void gpu_clock_launched(uint64_t now)
{
    enum { MANY_BEATS = 1024, UNHEARD = 15, NEAR_PART = 4 }; /* a quarter of a gap: 60 us */
    uint64_t moment = atomic_load_explicit(&gpu_clock.moment, memory_order_relaxed);
    uint64_t near = atomic_load_explicit(&gpu_clock.gap_ticks, memory_order_relaxed) / NEAR_PART;
    if (now >= moment)
        atomic_store_explicit(&gpu_clock.moment_in_call, true, memory_order_relaxed);
    if (now + near < moment &&
        atomic_load_explicit(&gpu_clock.beats, memory_order_relaxed) >= MANY_BEATS)
        gpu_clock_thread.unheard = UNHEARD;
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
void gpu_clock_forget(void); /* in the child of a fork */

#endif
