/* gpu_clock.c: see gpu_clock.h.
 *
 * Events are in a ring. A stretch is the time between two adjacent events; its data are in the
 * entry of the later one. The oldest events are read when a step begins or ends, as far as the
 * device has come: the driver's function for the time between two events also returns whether both
 * have passed.
 *
 *     read ─►  E0 ──work── E1 ──quiet── E2 ──work── E3 ...  ◄─ put
 *
 * One thread at a time uses the clock (`busy`); another one skips.
 */
#include "probe/gpu_clock.h"

#include <dlfcn.h>
#include <string.h>

enum {
    EVENTS = 512,
    SITES = 8,    /* remembered for each phase */
    GAP_US = 250, /* shorter pauses count as work of the host */
    COPY_BYTES =
        1 << 16,      /* smaller copies count as calls: two events would cost as much as the copy */
    WARM_STEPS = 3,   /* not measured: libraries load and the allocator grows in them */
    FIRST_STEPS = 8,  /* measured at any cost after those: a short run has no more */
    COST_SHARE = 800, /* at most this part of the time is spent here */
    CREDIT_US = 500,  /* of it, at most this much may be saved for later steps */
    COST_PART = 10,   /* of a gap, 25 us: a longer time here means that the thread was stopped, */
    USUAL_PART = 50,  /* or that the driver's queue was full; then 5 us count */
    CALL_NS = 20,     /* own time of a call, too short to be measured each time */
    NOT_READY = 600,  /* CUDA_ERROR_NOT_READY */
    NO_SITE = 0
};

/* Samples of the stream. The host sees the end of a kernel late: on an H200 an empty kernel, which
 * takes 1.5 us, was seen to be done 5.2 us after its launch had returned. The delay is longer on a
 * busy host, so it is measured. */
enum {
    DELAY_NS = 3000, /* minimum, and value before it is measured */
    MOST_DELAY_NS = 20000,
    DELAYS = 5,         /* last measurements; their median counts */
    DELAY_EVERY = 16,   /* afterwards it is measured on one in so many empty streams */
    SAMPLE_NS = 2000000 /* mean distance of samples, and the time that each stands for */
};

enum stretch {
    STRETCH_FIRST, /* the first event: nothing before it */
    STRETCH_WORK,
    STRETCH_QUIET, /* nothing was launched: all idle */
    STRETCH_GAP    /* work, then nothing for `quiet_ns`: at most that much is idle */
};

struct entry {
    void *event;
    enum stretch stretch;
    enum leat_clock_phase charge;
    uint64_t quiet_ns; /* of the host */
};

/* Device time of a phase that no events classify, and how much of it samples found idle. */
struct unmeasured {
    uint64_t work_ns, empty_ns;
};

struct gpu_clock gpu_clock;
__thread struct gpu_clock_thread gpu_clock_thread;

/* Protected by `busy`, except `capturing`. */
static struct {
    atomic_flag busy;
    bool broken, continuous, marked_input;
    enum leat_clock_phase phase, outer; /* outer: around a collective */
    int steps;
    uint64_t put, read; /* counts of entries; the entry before `read` is still there */
    uint64_t marked;    /* those known to be of a step; what comes after the last one is of none */
    struct entry ring[EVENTS];
    uint64_t event_ticks; /* when the last event was put */
    uint64_t alloc_ticks; /* spent in the allocator since then */
    uint64_t begin_ns, begin_ticks;
    uint64_t step_ticks; /* when the step began */
    uint64_t cost_ticks; /* spent here since the step began */
    double credit_ticks; /* that may be spent; negative: overspent */
    double ns_per_tick;
    uint32_t sites[LEAT_CLOCK_PHASES_COUNT + 1][SITES]; /* the last: skipped */
    uint32_t sites_learned[LEAT_CLOCK_PHASES_COUNT + 1];
    struct leat_clock_total totals[LEAT_CLOCK_PHASES_COUNT];
    struct unmeasured unmeasured[LEAT_CLOCK_PHASES_COUNT];
    void *delay_event;
    uint64_t delay[DELAYS]; /* ticks; `delay_ticks` is the median; `delays` were measured so far */
    uint64_t delay_ticks;
    uint32_t delays, empty_streams;
    uint64_t random;
    _Atomic int capturing;
} own = {.busy = ATOMIC_FLAG_INIT};

/* ---- the driver --------------------------------------------------------------------------- */

static struct {
    int (*create)(void **event, unsigned flags);
    int (*record)(void *event, void *stream);
    int (*elapsed)(float *ms, void *from, void *to);
    int (*capturing)(void *stream, int *status);
    int (*query)(void *stream);
    int (*seen)(void *event);
} driver;

static bool find_driver(void)
{
    void *handle = driver.create ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (handle) {
        *(void **)&driver.create = dlsym(handle, "cuEventCreate");
        *(void **)&driver.record = dlsym(handle, "cuEventRecord");
        *(void **)&driver.elapsed = dlsym(handle, "cuEventElapsedTime");
        *(void **)&driver.capturing = dlsym(handle, "cuStreamIsCapturing");
        *(void **)&driver.query = dlsym(handle, "cuStreamQuery");
        *(void **)&driver.seen = dlsym(handle, "cuEventQuery");
    }
    bool found = driver.create && driver.record && driver.elapsed && driver.capturing &&
                 driver.query && driver.seen;
    if (!found) {
        driver.create = NULL;
        dlerror(); /* the program must not see this error */
    }
    return found;
}

/* ---- exclusive use of the clock ------------------------------------------------------------- */

static bool take_clock(uint64_t *ret_start)
{
    if (atomic_flag_test_and_set_explicit(&own.busy, memory_order_acquire))
        return false;
    *ret_start = call_ticks();
    return true;
}

static void leave_clock(uint64_t start)
{
    uint64_t spent = call_ticks() - start, gap = atomic_load(&gpu_clock.gap_ticks);
    own.cost_ticks += spent < gap / COST_PART ? spent : gap / USUAL_PART;
    atomic_flag_clear_explicit(&own.busy, memory_order_release);
}

static void stop_clock(void)
{
    own.continuous = false;
    atomic_store(&gpu_clock.on, false);
}

/* An error of the driver: the program may have reset the device, or uses several. */
static void end_clock(void)
{
    own.broken = true;
    stop_clock();
}

static uint64_t to_ns(uint64_t ticks)
{
    return (uint64_t)((double)ticks * own.ns_per_tick);
}

/* ---- where gaps begin ----------------------------------------------------------------------- */

static void learn_site(uint32_t call)
{
    uint32_t *sites = own.sites[own.phase];
    for (int i = 0; i < SITES; i++)
        if (sites[i] == call)
            return;
    sites[own.sites_learned[own.phase]++ % SITES] = call;
}

static void expect_site(uint32_t call)
{
    uint32_t next = NO_SITE;
    for (int i = 0; i < SITES; i++) {
        uint32_t site = own.sites[own.phase][i];
        if (site > call && (next == NO_SITE || site < next))
            next = site;
    }
    atomic_store(&gpu_clock.site, next);
}

/* ---- putting events ----------------------------------------------------------------------- */

/* Whether no graph is being captured from the stream. */
static bool is_free(void)
{
    int status = 0;
    if (atomic_load(&own.capturing) > 0)
        return false;
    if (driver.capturing(atomic_load(&gpu_clock.stream), &status) != 0) {
        end_clock();
        return false;
    }
    return status == 0;
}

static bool may_record(void)
{
    return own.put - own.read < EVENTS - 1 &&
           is_free(); /* the entry before `read` is still needed */
}

/* The phase that the time since the last event is charged to. */
static enum leat_clock_phase phase_to_charge(uint64_t quiet)
{
    if (own.alloc_ticks > quiet / 2)
        return LEAT_CLOCK_ALLOCATOR;
    if (own.phase == LEAT_CLOCK_COLLECTIVE)
        return LEAT_CLOCK_COLLECTIVE;
    if (atomic_load(&gpu_clock.drained) && quiet <= atomic_load(&gpu_clock.gap_ticks))
        return LEAT_CLOCK_SYNC;
    return own.phase;
}

static bool stream_is_empty(void)
{
    int result = driver.query(atomic_load(&gpu_clock.stream));
    if (result != 0 && result != NOT_READY)
        end_clock();
    return result == 0;
}

static uint64_t delay_ticks(void)
{
    uint64_t least = (uint64_t)(DELAY_NS / own.ns_per_tick);
    return own.delay_ticks > least ? own.delay_ticks : least;
}

static uint64_t median_delay(void)
{
    uint64_t sorted[DELAYS] = {0};
    for (int i = 0; i < DELAYS; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > own.delay[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = own.delay[i];
    }
    return sorted[DELAYS / 2];
}

static bool record_event(void **event)
{
    if ((*event || driver.create(event, 0) == 0) &&
        driver.record(*event, atomic_load(&gpu_clock.stream)) == 0)
        return true;
    end_clock();
    return false;
}

/* On an empty stream an event takes no time, so the time until it is seen is the delay. */
static void measure_delay(void)
{
    uint64_t most = (uint64_t)(MOST_DELAY_NS / own.ns_per_tick);
    if (own.delays >= DELAYS && ++own.empty_streams % DELAY_EVERY)
        return;
    do {
        if (!record_event(&own.delay_event))
            return;
        uint64_t start = call_ticks(), took = 0;
        for (int result = NOT_READY; result == NOT_READY && took < most;) {
            result = driver.seen(own.delay_event);
            took = call_ticks() - start;
        }
        own.delay[own.delays++ % DELAYS] = took;
    } while (own.delays < DELAYS);
    own.delay_ticks = median_delay();
}

/* Ends the stretch since the last event with a new event. */
static void put_event(uint64_t now, enum stretch stretch, enum leat_clock_phase charge,
                      uint64_t quiet)
{
    struct entry *e = &own.ring[own.put % EVENTS];
    if (!may_record()) {
        own.continuous = false;
        return;
    }
    if (!record_event(&e->event))
        return;
    if (atomic_load(&gpu_clock.drained))
        measure_delay();
    e->stretch = own.continuous ? stretch : STRETCH_FIRST;
    e->charge = charge;
    e->quiet_ns = to_ns(quiet);
    own.put++;
    own.continuous = true;
    own.event_ticks = now;
    own.alloc_ticks = 0;
    atomic_store(&gpu_clock.calls_since_event, 0);
    atomic_store(&gpu_clock.drained, false);
}

/* Whether the stream was empty at `sample_ticks`: an end before that is visible after the delay. */
static bool was_empty(uint64_t sample_ticks)
{
    uint64_t seen = sample_ticks + delay_ticks();
    bool empty = stream_is_empty();
    while (!empty && call_ticks() < seen)
        ;
    return empty || stream_is_empty();
}

/* At the end of a gap: a device that still has work was never idle in it. That is so when a launch
 * that the probe does not see had to wait for a place in the driver's queue. */
static bool was_idle(void)
{
    return !is_free() || was_empty(call_ticks());
}

/* Records an event; the calls since the last one decide the kind of stretch that it ends. */
static void put_here(uint64_t now)
{
    uint64_t last = atomic_load(&gpu_clock.last_ticks), pause = now > last ? now - last : 0;
    if (atomic_load(&gpu_clock.calls_since_event) == 0) {
        put_event(now, STRETCH_QUIET, phase_to_charge(pause), now - own.event_ticks);
    } else if (pause > atomic_load(&gpu_clock.gap_ticks)) {
        bool idle = was_idle();
        if (idle)
            learn_site(atomic_load(&gpu_clock.calls));
        put_event(now, idle ? STRETCH_GAP : STRETCH_WORK, idle ? phase_to_charge(pause) : own.phase,
                  pause);
    } else {
        put_event(now, STRETCH_WORK, own.phase, 0);
    }
}

void gpu_clock_pause_ends(uint64_t now)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    put_here(now);
    leave_clock(start);
}

void gpu_clock_site_reached(void)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    expect_site(atomic_load(&gpu_clock.calls));
    put_here(start);
    leave_clock(start);
}

/* ---- samples of the stream ------------------------------------------------------------------ */

/* Uniform in [0, 2*mean): xorshift64, not cryptographic. */
static uint64_t random_ticks(double mean)
{
    uint64_t x = own.random ? own.random : call_ticks() | 1;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    own.random = x;
    return (uint64_t)(2 * mean * (double)(x >> 11) * 0x1p-53);
}

/* The times of samples do not depend on when earlier ones were taken, nor on whether the clock was
 * on: so each stands for the same time. */
static void choose_next_sample(void)
{
    uint64_t now = call_ticks(), sample_ticks = atomic_load(&gpu_clock.sample_ticks);
    double mean = SAMPLE_NS / own.ns_per_tick;
    if (sample_ticks == 0 || now > sample_ticks + (uint64_t)(1000 * mean))
        sample_ticks = now;
    while (sample_ticks <= now)
        sample_ticks += 1 + random_ticks(mean);
    atomic_store(&gpu_clock.sample_ticks, sample_ticks);
    atomic_store(&gpu_clock.sample_in_launch, false);
}

static void sample_stream(void)
{
    /* A time inside a launch is sampled before the next launch: nothing more was launched until
     * then. */
    uint64_t sample_ticks = atomic_load(&gpu_clock.sample_ticks), start = call_ticks();
    bool empty = was_empty(atomic_load(&gpu_clock.sample_in_launch) ? start : sample_ticks);
    if (call_ticks() - start > 2 * delay_ticks())
        return; /* the thread was stopped, and the device has done more since then */
    own.totals[LEAT_CLOCK_LAUNCH].n++;
    own.unmeasured[own.phase].empty_ns += empty ? SAMPLE_NS : 0;
    if (empty)
        measure_delay();
}

/* A time before the last event belongs to a stretch that has ended. */
static void take_sample(void)
{
    if (own.continuous && atomic_load(&gpu_clock.sample_ticks) >= own.event_ticks &&
        own.phase < LEAT_CLOCK_PHASES_COUNT && is_free())
        sample_stream();
    choose_next_sample();
}

void gpu_clock_sample_due(void)
{
    uint64_t start;
    if (!take_clock(&start))
        return;
    take_sample();
    leave_clock(start);
}

/* A phase ends: takes a sample whose time has come since the last call, if the event that follows
 * will not classify that time. */
static void take_last_sample(uint64_t now)
{
    uint64_t pause = now - atomic_load(&gpu_clock.last_ticks);
    if (now >= atomic_load(&gpu_clock.sample_ticks) &&
        atomic_load(&gpu_clock.calls_since_event) > 0 &&
        pause <= atomic_load(&gpu_clock.gap_ticks) && !atomic_load(&gpu_clock.drained))
        take_sample();
}

/* Samples that found the stream empty become idle time of the launches, taken from the phase. */
static void charge_launches(struct leat_clock_total *totals)
{
    for (int k = 0; k < LEAT_CLOCK_PHASES_COUNT; k++) {
        const struct unmeasured *u = &own.unmeasured[k];
        uint64_t idle_ns = u->empty_ns < u->work_ns ? u->empty_ns : u->work_ns;
        totals[k].device_ns -= idle_ns;
        totals[LEAT_CLOCK_LAUNCH].device_ns += idle_ns;
        totals[LEAT_CLOCK_LAUNCH].idle_ns += idle_ns;
    }
}

/* ---- copies, waits, the allocator, captures ------------------------------------------------- */

void gpu_clock_copy_follow(void *stream, uint64_t bytes)
{
    uint64_t start;
    if (!gpu_clock_follows() || stream != gpu_clock_thread.stream)
        return;
    if (bytes < COPY_BYTES) {
        gpu_clock_before(true);
        return;
    }
    if (!take_clock(&start))
        return;
    put_here(start);
    gpu_clock_thread.copying = true;
    leave_clock(start);
}

void gpu_clock_copy_followed(uint64_t now)
{
    uint64_t start;
    if (!gpu_clock_thread.copying) {
        gpu_clock_launched(now);
        return;
    }
    gpu_clock_thread.copying = false;
    if (!take_clock(&start))
        return;
    put_event(start, STRETCH_QUIET, LEAT_CLOCK_H2D, start - own.event_ticks);
    atomic_store(&gpu_clock.last_ticks, start);
    leave_clock(start);
}

void gpu_clock_drain_begins(void)
{
    uint64_t start;
    if (!gpu_clock_follows() || atomic_load(&gpu_clock.calls_since_event) == 0 ||
        !take_clock(&start))
        return;
    put_here(start);
    leave_clock(start);
}

void gpu_clock_drained(void)
{
    if (!gpu_clock_follows())
        return;
    atomic_store(&gpu_clock.last_ticks, call_ticks());
    atomic_store(&gpu_clock.drained, true);
}

void gpu_clock_allocated(uint64_t ticks)
{
    uint64_t start;
    if (!gpu_clock_follows() || !take_clock(&start))
        return;
    own.alloc_ticks += ticks;
    leave_clock(start);
}

void gpu_clock_capture(int change)
{
    atomic_fetch_add(&own.capturing, change);
}

/* ---- reading events ----------------------------------------------------------------------- */

static void add_stretch(const struct entry *e, uint64_t device_ns)
{
    struct leat_clock_total *t = &own.totals[e->charge];
    uint64_t idle = e->stretch == STRETCH_WORK ? 0 : device_ns;
    if (e->stretch == STRETCH_GAP && idle > e->quiet_ns)
        idle = e->quiet_ns;
    if (e->stretch != STRETCH_QUIET)
        own.unmeasured[e->charge].work_ns += device_ns - idle;
    t->device_ns += device_ns;
    t->idle_ns += idle;
    t->hidden_ns += e->quiet_ns > idle ? e->quiet_ns - idle : 0;
    t->n += e->stretch != STRETCH_WORK;
}

static void read_events(void)
{
    while (own.read < own.marked && atomic_load(&own.capturing) == 0) {
        const struct entry *e = &own.ring[own.read % EVENTS];
        float ms = 0;
        if (e->stretch != STRETCH_FIRST) {
            int result = driver.elapsed(&ms, own.ring[(own.read - 1) % EVENTS].event, e->event);
            if (result == NOT_READY)
                return;
            if (result != 0) {
                end_clock();
                return;
            }
            add_stretch(e, ms > 0 ? (uint64_t)((double)ms * 1e6) : 0);
        }
        own.read++;
    }
}

/* ---- steps and phases ----------------------------------------------------------------------- */

static void set_rate(uint64_t now)
{
    uint64_t ns = clock_now_ns() - own.begin_ns, ticks = now - own.begin_ticks;
    own.ns_per_tick = ns && ticks ? (double)ns / (double)ticks : 1;
    atomic_store(&gpu_clock.gap_ticks, (uint64_t)(GAP_US * 1e3 / own.ns_per_tick));
}

/* A step begins: whether the saved time allows to measure it. */
static bool is_affordable(uint64_t now)
{
    double most = CREDIT_US * 1e3 / own.ns_per_tick;
    if (own.steps <= WARM_STEPS + FIRST_STEPS)
        own.cost_ticks = 0;
    own.credit_ticks += (double)(now - own.step_ticks) / COST_SHARE - (double)own.cost_ticks;
    own.credit_ticks = own.credit_ticks < most ? own.credit_ticks : most;
    own.step_ticks = now;
    own.cost_ticks = 0;
    return own.credit_ticks >= 0;
}

static void begin_step(uint64_t now)
{
    if (own.steps++ == 0) {
        own.begin_ns = clock_now_ns();
        own.begin_ticks = own.step_ticks = now;
        own.cost_ticks = 0;
        return;
    }
    set_rate(now);
    if (atomic_load(&gpu_clock.on))
        read_events();
    bool on = is_affordable(now) && own.steps > WARM_STEPS && !own.broken && find_driver();
    if (on && atomic_load(&gpu_clock.stream) != gpu_clock_thread.stream) {
        own.continuous = false;
        atomic_store(&gpu_clock.stream, gpu_clock_thread.stream);
    }
    if (!on) {
        stop_clock();
    } else if (!own.continuous) {
        choose_next_sample();
        put_here(now);
    }
    atomic_store(&gpu_clock.on, on && !own.broken);
}

static bool begins_step(enum leat_clock_phase phase)
{
    own.marked_input |= phase == LEAT_CLOCK_INPUT;
    return phase == LEAT_CLOCK_INPUT ||
           (phase == LEAT_CLOCK_OTHER && !own.marked_input && own.phase == LEAT_CLOCK_OPTIMIZER);
}

/* The phase that begins: a collective is inside another phase, and is ignored during evaluation. */
static enum leat_clock_phase phase_meant(enum leat_clock_phase phase)
{
    if (phase == LEAT_CLOCK_COLLECTIVE && own.phase == LEAT_CLOCK_SKIPPED)
        return LEAT_CLOCK_SKIPPED;
    if (phase == LEAT_CLOCK_COLLECTIVE && own.phase != LEAT_CLOCK_COLLECTIVE)
        own.outer = own.phase;
    if (phase == LEAT_CLOCK_RESUMED)
        return own.phase == LEAT_CLOCK_COLLECTIVE ? own.outer : own.phase;
    return phase;
}

void gpu_clock_begin_phase(enum leat_clock_phase phase)
{
    uint64_t start;
    if (!gpu_clock_thread.launched || (unsigned)phase > LEAT_CLOCK_RESUMED || !take_clock(&start))
        return;
    phase = phase_meant(phase);
    if (own.phase == LEAT_CLOCK_SKIPPED || phase == LEAT_CLOCK_SKIPPED)
        own.continuous = false;
    if (phase == LEAT_CLOCK_SKIPPED)
        atomic_store(&gpu_clock.on, false);
    if (atomic_load(&gpu_clock.on)) { /* at once, because the rest takes time too */
        own.cost_ticks += (uint64_t)(atomic_load(&gpu_clock.calls) * CALL_NS / own.ns_per_tick);
        take_last_sample(start);
        put_here(start);
    }
    if (own.phase != LEAT_CLOCK_INPUT) /* a fetch may be the last one, which gets no batch */
        own.marked = own.put;
    if (begins_step(phase))
        begin_step(start);
    own.phase = phase;
    atomic_store(&gpu_clock.calls, 0);
    expect_site(0);
    atomic_store(&gpu_clock.last_ticks, call_ticks());
    leave_clock(start);
}

bool gpu_clock_read(struct leat_clock_total ret_totals[LEAT_CLOCK_PHASES_COUNT])
{
    uint64_t start;
    if (!take_clock(&start))
        return false;
    if (gpu_clock_thread.launched &&
        !own.broken) /* the last step is followed by none that would read them */
        read_events();
    bool any = own.read > 1;
    memcpy(ret_totals, own.totals, sizeof own.totals);
    charge_launches(ret_totals);
    leave_clock(start);
    return any;
}

void gpu_clock_reset(void)
{
    if (own.steps > 0 || atomic_load(&own.capturing)) /* avoids a copy of the page in most forks */
        memset(&own, 0, sizeof own);
    atomic_flag_clear(&own.busy);
    if (atomic_load(&gpu_clock.on)) /* avoids a copy of the page in most forks */
        atomic_store(&gpu_clock.on, false);
    gpu_clock_thread = (struct gpu_clock_thread){0};
}
